/* REDUCE_SHARE on one bare tile, against plain loops in double. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "base/f16.h"
#include "kernel_bench.h"

struct share {
    struct kernel_variant v;
    uint32_t parts, rows, panels; /* received parts */
    uint32_t block_rows;          /* of the block that holds the own part */
    double scale;                 /* of f16 partials */
    uint32_t own, in, stride, bias, out;
};

static void put_partial(struct bench *b, const struct share *s, uint32_t addr) {
    float value = f16_to_f32(random_half(2)) * 1.0003f;
    if (s->v.in_f16) {
        put_half(b, addr, random_half(s->scale));
    } else {
        put_bytes(b, addr, &value, 4);
    }
}

static float partial(const struct bench *b, const struct share *s, uint32_t addr) {
    return (float)(s->v.in_f16 ? get_half(b->before, addr) : get_float(b->before, addr));
}

/* Address of element (r, c) of a part whose panels have `rows` rows. */
static uint32_t
part_addr(const struct share *s, uint32_t base, uint32_t rows, uint32_t r, uint32_t c) {
    return base + (s->v.in_f16 ? 2 : 4) * ((c / 16 * rows + r) * 16 + c % 16);
}

static void fill(struct bench *b, const struct share *s) {
    for (uint32_t c = 0; c < 16 * s->panels; c++) {
        for (uint32_t r = 0; r < s->rows; r++) {
            put_partial(b, s, part_addr(s, s->own, s->block_rows, r, c));
            for (uint32_t p = 0; p < s->parts; p++) {
                put_partial(b, s, part_addr(s, s->in + p * s->stride, s->rows, r, c));
            }
        }
        if (s->v.has_bias) {
            put_half(b, s->bias + 2 * c, random_half(2));
        }
    }
}

/* The same order and the same roundings: equal bits but for the activations' own error. */
static void check_output(struct bench *b, const struct share *s, uint32_t r, uint32_t c) {
    float sum = partial(b, s, part_addr(s, s->own, s->block_rows, r, c));
    for (uint32_t p = 0; p < s->parts; p++) {
        sum += partial(b, s, part_addr(s, s->in + p * s->stride, s->rows, r, c));
    }
    if (s->v.has_bias) {
        sum += (float)get_half(b->before, s->bias + 2 * c);
    }
    double want = activate(s->v.act, sum), error = s->v.act < ACT_TANH ? 0 : 1e-6;
    /* GELU in f16: the sum's rounding counts 1.13 units of x, those of the argument 6 times 0.45
     * (the largest u / cosh(u)^2) times x / 2, those of tanh, product and sum one half, one half
     * and one. */
    if (s->v.in_f16 && s->v.act == ACT_GELU_TANH) {
        error = (1.13 + 6 * 0.45 / 2 + 2) * 0x1p-11 * fabs(sum);
    }
    check_value(
        b, "out", r, c, get_half(b->after, element_addr(s->out, s->rows, r, c)), saturate(want),
        half_tolerance(want, error));
}

static void check_share(struct share s) {
    struct bench b;
    bench_init(&b, &s.v);
    uint32_t element = s.v.in_f16 ? 2 : 4, bytes = 16 * element * s.rows * s.panels;
    s.stride = bytes + 24;
    s.in = TARGET_MEM_END - s.stride * (s.parts - 1) - bytes; /* reading past it would fault */
    s.own = REGION0 + 0x108;
    s.bias = REGION1 + 0x100;
    s.out = REGION1 + 0x1008;
    fill(&b, &s);
    allow_write(&b, s.out, s.rows * s.panels * 32);
    b.words[REDUCE_SHARE_OWN] = s.own;
    b.words[REDUCE_SHARE_OWN_PANEL] = 16 * element * s.block_rows;
    b.words[REDUCE_SHARE_IN] = s.in;
    b.words[REDUCE_SHARE_STRIDE] = s.stride;
    b.words[REDUCE_SHARE_PARTS] = s.parts;
    b.words[REDUCE_SHARE_BIAS] = s.v.has_bias ? s.bias : 3; /* must not be looked at */
    b.words[REDUCE_SHARE_OUT] = s.out;
    b.words[REDUCE_SHARE_ROWS] = s.rows;
    b.words[REDUCE_SHARE_PANELS] = s.panels;
    run(&b);
    for (uint32_t r = 0; r < s.rows; r++) {
        for (uint32_t c = 0; c < 16 * s.panels; c++) {
            check_output(&b, &s, r, c);
        }
    }
    check_cycles(&b, s.parts, s.rows, s.panels);
    bench_done(&b);
}

START_TEST(share_shapes) {
    static const uint32_t shapes[][4] = {{1, 1, 1, 1},  {2, 1, 5, 9},   {3, 4, 2, 4},
                                         {7, 6, 1, 40}, {1, 25, 2, 30}, {15, 8, 3, 8},
                                         {26, 9, 4, 11}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (int bits = 0; bits < 4; bits++) {
            struct share s = {
                .v =
                    {.id = KERNEL_REDUCE_SHARE,
                     .act = _i,
                     .has_bias = bits & 1,
                     .in_f16 = bits >> 1},
                .parts = shapes[i][0],
                .rows = shapes[i][1],
                .panels = shapes[i][2],
                .block_rows = shapes[i][3],
                .scale = i % 2 == 0 ? 2 : 20000};
            check_share(s);
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kernels_reduce");
    TCase *tc = tcase_create("kernels_reduce");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, share_shapes, 0, ACT_COUNT);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

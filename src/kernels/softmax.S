// SOFTMAX: each row over `columns` logical columns, in three passes over the row: largest value;
// f32 sum of exp(x - max); exp(x - max) / sum, rounded once. The exponentials are computed twice
// instead of stored in f16, which would round twice.
//
// Columns that fill no whole panel: the tail panel's padding lanes are replaced by -inf, whose
// exponential is exactly 0, so padding of out becomes 0 without a case of its own.
// Worker area: 0..31 lane masks of the tail, 32..63 -inf in its padding lanes, 64..71 four -inf.
.set MASK, 0
.set FILL, 32 / 8
.set NEG, 64 / 8

.macro MASK_WORD i
    add $m3, $m10, -2 * \i
    sub $m4, 0, $m3
    shrs $m4, $m4, 31
    sub $m5, 1, $m3
    shrs $m5, $m5, 31
    sort4x16lo $m4, $m4, $m5
    andc $m5, $m11, $m4
    st32 $m4, $m12, $m15, \i
    st32 $m5, $m12, $m15, 8 + \i
.endm

// f16 quad in $a4:5 -> exp(x - max) in $a0:3; $a7 = -max.
.macro EXP_QUAD
    { nop ; f16v2tof32 $a0:1, $a4 }
    { nop ; f16v2tof32 $a2:3, $a5 }
    { nop ; f32v2add $a0:1, $a7:B, $a0:1 }
    { nop ; f32v2add $a2:3, $a7:B, $a2:3 }
    { nop ; f32exp $a0, $a0 }
    { nop ; f32exp $a1, $a1 }
    { nop ; f32exp $a2, $a2 }
    { nop ; f32exp $a3, $a3 }
.endm

.macro SUM_QUAD step
    { ld64step $a4:5, $m15, $m3+=, \step ; f32v4acc $a0:3 }
    EXP_QUAD
.endm

.macro SCALE_QUAD step
    { ld64step $a4:5, $m15, $m3+=, \step ; fnop }
    EXP_QUAD
    { nop ; f32v2mul $a0:1, $a6:B, $a0:1 }
    { nop ; f32v2mul $a2:3, $a6:B, $a2:3 }
    { nop ; f32v4tof16 $a0:1, $a0:3 }
    { st64step $a0:1, $m15, $m4+=, \step ; fnop }
.endm

// Masks quad \i of the tail panel in $a4:5. Clobbers $a0:3.
.macro MASK_QUAD i
    ld64 $a0:1, $m12, $m15, MASK + \i
    { ld64 $a2:3, $m12, $m15, FILL + \i ; and64 $a4:5, $a4:5, $a0:1 }
    or64 $a4:5, $a4:5, $a2:3
.endm

.macro SUM_TAIL i
    { ld64step $a4:5, $m15, $m3+=, 1 ; f32v4acc $a0:3 }
    MASK_QUAD \i
    EXP_QUAD
.endm

.macro SCALE_TAIL i
    ld64step $a4:5, $m15, $m3+=, 1
    MASK_QUAD \i
    EXP_QUAD
    f32v2mul $a0:1, $a6:B, $a0:1
    f32v2mul $a2:3, $a6:B, $a2:3
    f32v4tof16 $a0:1, $a0:3
    st64step $a0:1, $m15, $m4+=, 1
.endm

.macro MAX_TAIL i
    ld64step $a4:5, $m15, $m3+=, 1
    { ld64 $a6:7, $m12, $m15, MASK + \i ; fnop }
    { ld64 $a2:3, $m12, $m15, FILL + \i ; and64 $a4:5, $a4:5, $a6:7 }
    or64 $a4:5, $a4:5, $a2:3
    f16v4max $a0:1, $a0:1, $a4:5
.endm

    LAUNCH_ONCE
    ld32 $m0, $m13, $m15, SOFTMAX_ROWS
    SPLIT
    brz $m2, done
    ld32 $m6, $m13, $m15, SOFTMAX_X
    ld32 $m7, $m13, $m15, SOFTMAX_OUT
    ld32 $m10, $m13, $m15, SOFTMAX_COLUMNS
    shl $m1, $m1, 5
    add $m6, $m6, $m1
    add $m7, $m7, $m1
    shl $m9, $m0, 2
    add $m9, $m9, -3
    shr $m8, $m10, 4
    and $m10, $m10, 15
    setzi $m11, 0xfc00
    or $m11, $m11, 0xfc000000
    st32 $m11, $m12, $m15, 16
    st32 $m11, $m12, $m15, 17
    setzi $a0, 8
    uput $FP_CLR, $a0
    add $m2, $m2, -1
    brz $m10, row
    MASK_WORD 0
    MASK_WORD 1
    MASK_WORD 2
    MASK_WORD 3
    MASK_WORD 4
    MASK_WORD 5
    MASK_WORD 6
    MASK_WORD 7
.p2align 3
row:
    mov $m3, $m6
    ld64 $a0:1, $m12, $m15, NEG
    ld64 $a4:5, $m12, $m15, NEG
.p2align 3
    { rpt $m8, 3 ; fnop }
    { ld64step $a2:3, $m15, $m3+=, 1 ; f16v4max $a0:1, $a0:1, $a4:5 }
    { ld64step $a4:5, $m15, $m3+=, 1 ; f16v4max $a0:1, $a0:1, $a2:3 }
    { ld64step $a2:3, $m15, $m3+=, 1 ; f16v4max $a0:1, $a0:1, $a4:5 }
    { ld64step $a4:5, $m15, $m3+=, $m9 ; f16v4max $a0:1, $a0:1, $a2:3 }
    f16v4max $a0:1, $a0:1, $a4:5
    brz $m10, max_done
    MAX_TAIL 0
    MAX_TAIL 1
    MAX_TAIL 2
    MAX_TAIL 3
max_done:
    f16v4maxc $a0, $a0:1
    f16v2maxc $a0, $a0
    f16tof32 $a7, $a0
    { mov $m3, $m6 ; f32sub $a7, $azero, $a7 }
    or64 $a0:1, $azeros, $azeros
    or64 $a2:3, $azeros, $azeros
.p2align 3
    { rpt $m8, 35 ; fnop }
    SUM_QUAD 1
    SUM_QUAD 1
    SUM_QUAD 1
    SUM_QUAD $m9
    brz $m10, sum_done
    SUM_TAIL 0
    SUM_TAIL 1
    SUM_TAIL 2
    SUM_TAIL 3
sum_done:
    f32v4acc $a0:3
    f32v2gina $a0:1, $azeros, 0
    f32v2gina $a2:3, $azeros, 0
    f32v2add $a0:1, $a0:1, $a2:3
    { mov $m3, $m6 ; f32add $a0, $a0, $a1 }
    { mov $m4, $m7 ; f32oox $a6, $a0 }
.p2align 3
    { rpt $m8, 51 ; fnop }
    SCALE_QUAD 1
    SCALE_QUAD 1
    SCALE_QUAD 1
    SCALE_QUAD $m9
    brz $m10, scale_done
    SCALE_TAIL 0
    SCALE_TAIL 1
    SCALE_TAIL 2
    SCALE_TAIL 3
scale_done:
    add $m6, $m6, 32
    add $m7, $m7, 32
    brnzdec $m2, row
done:
    exitz $m15

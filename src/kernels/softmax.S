// SOFTMAX: each row over `columns` logical columns, in three passes over the row: largest value;
// f32 sum of exp(x - max); exp(x - max) / sum, rounded once. The exponentials are computed twice
// instead of stored in f16, which would round twice.
//
// Columns that fill no whole panel: whole quads of the tail panel go one by one; in a partial quad
// padding lanes are replaced by -inf, whose exponential is exactly 0; the quads after it are
// stored as 0.
//
// Two ways to deal out work. Many rows: a worker takes a run of rows, in one launch. Few wide
// rows: each worker takes a run of panels of every row; its largest values and sums are left in
// its area, three launches apart, and every worker combines all six.
//
// Worker area: 0..7 lane mask of the partial quad, 8..15 -inf in its padding lanes, 16..23 four
// -inf, 24.. (few rows) largest value and 48.. sum, a word a row; 96.. own run of panels.
.set MASK, 0
.set FILL, 1
.set NEG, 2
.set LARGEST, 24
.set SUMS, 48

// $m0 = columns in the partial quad, $m11 = two -inf.
.macro MASK_WORD i
    add $m3, $m0, -2 * \i
    sub $m4, 0, $m3
    shrs $m4, $m4, 31
    sub $m5, 1, $m3
    shrs $m5, $m5, 31
    sort4x16lo $m4, $m4, $m5
    andc $m5, $m11, $m4
    st32 $m4, $m12, $m15, \i
    st32 $m5, $m12, $m15, 2 * FILL + \i
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

// Masks the partial quad in $a4:5. Clobbers $a0:3.
.macro MASK_QUAD
    ld64 $a0:1, $m12, $m15, MASK
    { ld64 $a2:3, $m12, $m15, FILL ; and64 $a4:5, $a4:5, $a0:1 }
    or64 $a4:5, $a4:5, $a2:3
.endm

.supervisor
.p2align 3
ENTRY
    ld32 $m4, $m2, $m15, SOFTMAX_COLUMNS
    ld32 $m5, $m2, $m15, SOFTMAX_ROWS
    ROWS_OR_PANELS wide_max, wide_sum, wide_scale

.worker
// The passes over one row or a run of its panels. $m6 x, $m7 out, $m8 whole panels, $m9 step from
// a panel's last quad to the next panel in doublewords, $m10 columns of a tail panel or 0, $m11
// link. Clobber $m0, $m3, $m4, $a0..$a5.

// -> $a7 largest value, f32 (-inf when there are no panels). Clobbers $a6.
.p2align 3
pass_max:
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
    shr $m0, $m10, 2
.p2align 3
    { rpt $m0, 1 ; fnop }
    { ld64step $a2:3, $m15, $m3+=, 1 ; fnop }
    { nop ; f16v4max $a0:1, $a0:1, $a2:3 }
    and $m0, $m10, 3
    brz $m0, max_done
    ld64 $a4:5, $m15, $m3, 0
    ld64 $a6:7, $m12, $m15, MASK
    { ld64 $a2:3, $m12, $m15, FILL ; and64 $a4:5, $a4:5, $a6:7 }
    or64 $a4:5, $a4:5, $a2:3
    f16v4max $a0:1, $a0:1, $a4:5
max_done:
    f16v4maxc $a0, $a0:1
    f16v2maxc $a0, $a0
    { br $m11 ; f16tof32 $a7, $a0 }

// $a7 = -max -> $a0 sum. Leaves the accumulators 0, as it needs them.
.p2align 3
pass_sum:
    { mov $m3, $m6 ; or64 $a0:1, $azeros, $azeros }
    or64 $a2:3, $azeros, $azeros
.p2align 3
    { rpt $m8, 35 ; fnop }
    SUM_QUAD 1
    SUM_QUAD 1
    SUM_QUAD 1
    SUM_QUAD $m9
    brz $m10, sum_done
    shr $m0, $m10, 2
.p2align 3
    { rpt $m0, 8 ; fnop }
    SUM_QUAD 1
    and $m0, $m10, 3
    brz $m0, sum_done
    { ld64 $a4:5, $m15, $m3, 0 ; f32v4acc $a0:3 }
    MASK_QUAD
    EXP_QUAD
sum_done:
    f32v4acc $a0:3
    f32v2gina $a0:1, $azeros, 0
    f32v2gina $a2:3, $azeros, 0
    f32v2add $a0:1, $a0:1, $a2:3
    { br $m11 ; f32add $a0, $a0, $a1 }

// $a7 = -max, $a6 = 1 / sum.
.p2align 3
pass_scale:
    mov $m3, $m6
    mov $m4, $m7
.p2align 3
    { rpt $m8, 51 ; fnop }
    SCALE_QUAD 1
    SCALE_QUAD 1
    SCALE_QUAD 1
    SCALE_QUAD $m9
    brz $m10, scale_done
    shr $m0, $m10, 2
.p2align 3
    { rpt $m0, 12 ; fnop }
    SCALE_QUAD 1
    and $m0, $m10, 3
    brz $m0, scale_zeros
    ld64 $a4:5, $m15, $m3, 0
    MASK_QUAD
    EXP_QUAD
    f32v2mul $a0:1, $a6:B, $a0:1
    f32v2mul $a2:3, $a6:B, $a2:3
    f32v4tof16 $a0:1, $a0:3
    st64step $a0:1, $m15, $m4+=, 1
scale_zeros:
    sub $m0, 16, $m10
    shr $m0, $m0, 2
.p2align 3
    { rpt $m0, 0 ; fnop }
    { st64step $azeros, $m15, $m4+=, 1 ; fnop }
scale_done:
    br $m11

// Four -inf, accumulators 0, and the partial quad's masks when $m10 has one. Clobbers $m0.
.macro PREPARE prepared
    setzi $m11, 0xfc00
    or $m11, $m11, 0xfc000000
    st32 $m11, $m12, $m15, 2 * NEG
    { st32 $m11, $m12, $m15, 2 * NEG + 1 ; setzi $a0, 8 }
    { and $m0, $m10, 3 ; uput $FP_CLR, $a0 }
    brz $m0, \prepared
    MASK_WORD 0
    MASK_WORD 1
\prepared:
.endm

.p2align 3
rows_worker:
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
    add $m2, $m2, -1
    PREPARE rows_tail
row:
    call $m11, pass_max
    f32sub $a7, $azero, $a7
    call $m11, pass_sum
    f32oox $a6, $a0
    call $m11, pass_scale
    add $m6, $m6, 32
    add $m7, $m7, 32
    brnzdec $m2, row
done:
    exitz $m15

// Few rows: $m2 rows - 1, $m5 worker 0's largest values, $m6..$m10 for the passes.
.p2align 3
wide_max:
    OWN_PANELS SOFTMAX_X, SOFTMAX_OUT, SOFTMAX_ROWS, SOFTMAX_COLUMNS
    shl $m4, $m9, 5
    mul $m4, $m4, $m1
    add $m6, $m6, $m4
    add $m7, $m7, $m4
    add $m2, $m9, -1
    shl $m9, $m9, 2
    add $m9, $m9, -3
    shl $m5, $m3, 8
    sub $m5, $m12, $m5
    add $m5, $m5, LARGEST
    KEEP_RUN
    PREPARE max_ready
    add $m5, $m12, LARGEST
max_row:
    call $m11, pass_max
    st32step $a7, $m15, $m5+=, 1
    add $m6, $m6, 32
    brnzdec $m2, max_row
    exitz $m15

// $a7 = -(largest of the six values of this row at $m5). Clobbers $m4, $a0.
.macro COMBINE_MAX
    mov $m4, $m5
    ld32step $a7, $m15, $m4+=, AREA_WORDS
    ld32step $a0, $m15, $m4+=, AREA_WORDS
    { ld32step $a0, $m15, $m4+=, AREA_WORDS ; f32max $a7, $a7, $a0 }
    { ld32step $a0, $m15, $m4+=, AREA_WORDS ; f32max $a7, $a7, $a0 }
    { ld32step $a0, $m15, $m4+=, AREA_WORDS ; f32max $a7, $a7, $a0 }
    { ld32step $a0, $m15, $m4+=, AREA_WORDS ; f32max $a7, $a7, $a0 }
    f32max $a7, $a7, $a0
    f32sub $a7, $azero, $a7
.endm

.p2align 3
wide_sum:
    RESTORE_RUN
    add $m1, $m12, SUMS
    setzi $a0, 8
    uput $FP_CLR, $a0
sum_row:
    COMBINE_MAX
    call $m11, pass_sum
    st32step $a0, $m15, $m1+=, 1
    add $m6, $m6, 32
    add $m5, $m5, 4
    brnzdec $m2, sum_row
    exitz $m15

.p2align 3
wide_scale:
    RESTORE_RUN
    ld32 $m7, $m12, $m15, RUN + 6
scale_row:
    COMBINE_MAX
    add $m4, $m5, SUMS - LARGEST
    ld32step $a6, $m15, $m4+=, AREA_WORDS
    ld32step $a0, $m15, $m4+=, AREA_WORDS
    { ld32step $a0, $m15, $m4+=, AREA_WORDS ; f32add $a6, $a6, $a0 }
    { ld32step $a0, $m15, $m4+=, AREA_WORDS ; f32add $a6, $a6, $a0 }
    { ld32step $a0, $m15, $m4+=, AREA_WORDS ; f32add $a6, $a6, $a0 }
    { ld32step $a0, $m15, $m4+=, AREA_WORDS ; f32add $a6, $a6, $a0 }
    f32add $a6, $a6, $a0
    f32oox $a6, $a6
    call $m11, pass_scale
    add $m6, $m6, 32
    add $m7, $m7, 32
    add $m5, $m5, 4
    brnzdec $m2, scale_row
    exitz $m15

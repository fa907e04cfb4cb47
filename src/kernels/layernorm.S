// LAYERNORM: each row over `columns` logical columns, in three passes: sum, sum of squared
// deviations from the mean, result. With a residual the first pass also forms f16(x + residual),
// exact and rounded once, stores it in `sum`, and the other passes read that.
//
// 1, 5 and 17 groups a quad (4 first with a residual), so 23 cycles a quad over six workers; the
// roofline is the aux pipe's 1, 5 and 15.
//
// Columns that fill no whole panel: the statistics take whole quads of the tail panel one by one
// and mask the partial quad. The last pass takes the whole tail panel: with scale and bias 0
// there, its padding becomes 0.
//
// Two ways to deal out work, as in SOFTMAX. Many rows: a worker takes a run of rows, one launch.
// Few wide rows: each worker takes a run of panels of every row; its sums are left in its area,
// three launches apart, and every worker combines all six.
//
// One row of whole panels: two launches over a run of quads each. The first sums differences d to
// the row's first element and their squares; the variance is then mean d^2 - (mean d)^2. What
// cancels is (mean d)^2: at most columns - 1 times the variance, since that element is one of the
// row, and about once or twice where it is no outlier. The second works on pairs, 7 groups each:
// f32v2axpy gives (x - mean) / deviation as x / deviation + (-mean / deviation), one turn late, and
// the pair after the last one is read for it.
//
// Worker area: 0..23 lane masks; 24 columns as f32; 28.. (few rows) sums and 48.. sums of squares,
// a word a row (one row: 28 pivot; in worker 0's area 32.. both sums of each); 72 residual - x,
// 76 sum - x; 96.. own run of panels.
.set COLUMNS, 24 / 4
.set SUMS, 28
.set SQUARES, 48
.set D_RESIDUAL, 72 / 4
.set D_SUM, 76 / 4

.macro ADD_QUAD step
    { ld64step $a0:1, $m15, $m3+=, \step ; f16v4acc $a4:5 }
    { ld64step $a2:3, $m15, $m4+=, \step ; fnop }
    { nop ; f16v4add $a4:5, $a0:1, $a2:3 }
    { st64step $a4:5, $m15, $m0+=, \step ; fnop }
.endm

.macro SQUARE_QUAD step
    { ld64step $a4:5, $m15, $m3+=, \step ; f32v4sqacc $a0:3 }
    { nop ; f16v2tof32 $a0:1, $a4 }
    { nop ; f16v2tof32 $a2:3, $a5 }
    { nop ; f32v2add $a0:1, $a7:B, $a0:1 }
    { nop ; f32v2add $a2:3, $a7:B, $a2:3 }
.endm

.macro APPLY_QUAD step
    { ld64step $a4:5, $m15, $m3+=, \step ; fnop }
    { nop ; f16v2tof32 $a0:1, $a4 }
    { ld32step $a4, $m15, $m0+=, 1 ; f16v2tof32 $a2:3, $a5 }
    { nop ; f32v2add $a0:1, $a7:B, $a0:1 }
    { nop ; f32v2add $a2:3, $a7:B, $a2:3 }
    { nop ; f32v2mul $a0:1, $a6:B, $a0:1 }
    { nop ; f32v2mul $a2:3, $a6:B, $a2:3 }
    { nop ; f16v2tof32 $a4:5, $a4 }
    { ld32step $a4, $m15, $m0+=, 1 ; f32v2mul $a0:1, $a0:1, $a4:5 }
    { nop ; f16v2tof32 $a4:5, $a4 }
    { ld32step $a4, $m15, $m1+=, 1 ; f32v2mul $a2:3, $a2:3, $a4:5 }
    { nop ; f16v2tof32 $a4:5, $a4 }
    { ld32step $a4, $m15, $m1+=, 1 ; f32v2add $a0:1, $a0:1, $a4:5 }
    { nop ; f16v2tof32 $a4:5, $a4 }
    { nop ; f32v2add $a2:3, $a2:3, $a4:5 }
    { nop ; f32v4tof16 $a0:1, $a0:3 }
    { st64step $a0:1, $m15, $m4+=, \step ; fnop }
.endm

.supervisor
.p2align 3
ENTRY
    ld32 $m4, $m2, $m15, LAYERNORM_COLUMNS
    ld32 $m5, $m2, $m15, LAYERNORM_ROWS
.if !HAS_RESIDUAL
    and $m6, $m4, 15
    cmpeq $m7, $m5, 1
    brnz $m6, several
    brz $m7, several
    setzi $m3, one_sums
    runall $m3, $m2, 0
    setzi $m3, one_apply
    sync 2
    bri last_launch
several:
.endif
    ROWS_OR_PANELS wide_sum, wide_square, wide_apply

.worker
// The passes over one row or a run of its panels: $m6 x, $m7 out, $m8..$m10 as for SUM_PANELS,
// $m11 link. They leave the accumulators 0, as they need them.

// -> $a0 sum. Clobbers $m0, $m3, $m4, $a1..$a5.
.p2align 3
pass_sum:
    mov $m3, $m6
.if HAS_RESIDUAL
    ld32 $m4, $m12, $m15, D_RESIDUAL
    ld32 $m0, $m12, $m15, D_SUM
    add $m4, $m4, $m6
    { add $m0, $m0, $m6 ; or64 $a4:5, $azeros, $azeros }
.p2align 3
    { rpt $m8, 15 ; fnop }
    ADD_QUAD 1
    ADD_QUAD 1
    ADD_QUAD 1
    ADD_QUAD $m9
    f16v4acc $a4:5
    brz $m10, sum_done
    mov $m1, $m0
    or64 $a4:5, $azeros, $azeros
    ADD_QUAD 1
    or64 $a4:5, $azeros, $azeros
    ADD_QUAD 1
    or64 $a4:5, $azeros, $azeros
    ADD_QUAD 1
    or64 $a4:5, $azeros, $azeros
    ADD_QUAD 1
    { mov $m3, $m1 ; or64 $a0:1, $azeros, $azeros }
.else
    SUM_PANELS
.endif
    SUM_TAIL
sum_done:
    SUM_TAKE
    br $m11

// $a7 = -mean -> $a0 sum of squares. Clobbers $m0, $m3, $a1..$a5.
.p2align 3
pass_square:
    mov $m3, $m6
.if HAS_RESIDUAL
    ld32 $m0, $m12, $m15, D_SUM
    add $m3, $m3, $m0
.endif
    or64 $a0:1, $azeros, $azeros
    or64 $a2:3, $azeros, $azeros
.p2align 3
    { rpt $m8, 19 ; fnop }
    SQUARE_QUAD 1
    SQUARE_QUAD 1
    SQUARE_QUAD 1
    SQUARE_QUAD $m9
    brz $m10, square_done
    shr $m0, $m10, 2
.p2align 3
    { rpt $m0, 4 ; fnop }
    SQUARE_QUAD 1
    and $m0, $m10, 3
    brz $m0, square_done
    SQUARE_QUAD 1
    ld64 $a4:5, $m12, $m15, 1
    { ld64 $a4:5, $m12, $m15, 2 ; and64 $a0:1, $a0:1, $a4:5 }
    and64 $a2:3, $a2:3, $a4:5
square_done:
    f32v4sqacc $a0:3
    SUM_TAKE
    br $m11

// $a7 = -mean, $a6 = 1 / deviation, $m0 scale, $m1 bias. Clobbers $m0, $m1, $m3, $m4, $a0..$a5.
.p2align 3
pass_apply:
    mov $m3, $m6
    mov $m4, $m7
.if HAS_RESIDUAL
    ld32 $m11, $m12, $m15, D_SUM
    add $m3, $m3, $m11
.endif
    cmpne $m11, $m10, $m15
    add $m11, $m11, $m8
.p2align 3
    { rpt $m11, 67 ; fnop }
    APPLY_QUAD 1
    APPLY_QUAD 1
    APPLY_QUAD 1
    APPLY_QUAD $m9
    br $m5

// Sum in $a0 -> $a7 = -mean. Sum of squares in $a0 -> $a6. Clobber $a0, $a1.
.macro MEAN
    ld32 $a1, $m12, $m15, COLUMNS
    f32div $a0, $a0, $a1
    f32sub $a7, $azero, $a0
.endm
.macro DEVIATION
    ld32 $a1, $m12, $m15, COLUMNS
    f32div $a0, $a0, $a1
    ld32 $a1, $m13, $m15, LAYERNORM_EPSILON
    f32add $a0, $a0, $a1
    f32oorx $a6, $a0
.endm

// What all launches need first: accumulators 0, columns as f32, masks. Clobbers $m0, $m3..$m5,
// $a0; $m10 = columns of a tail panel.
.macro PREPARE prepared
    ld32 $a0, $m13, $m15, LAYERNORM_COLUMNS
    f32fromui32 $a0, $a0
    st32 $a0, $m12, $m15, COLUMNS
.if HAS_RESIDUAL
    ld32 $m0, $m13, $m15, LAYERNORM_X
    ld32 $m3, $m13, $m15, LAYERNORM_RESIDUAL
    ld32 $m4, $m13, $m15, LAYERNORM_SUM
    sub $m3, $m3, $m0
    sub $m4, $m4, $m0
    st32 $m3, $m12, $m15, D_RESIDUAL
    st32 $m4, $m12, $m15, D_SUM
.endif
    setzi $a0, 8
    { and $m0, $m10, 3 ; uput $FP_CLR, $a0 }
    brz $m0, \prepared
    LANE_MASKS
\prepared:
.endm

.p2align 3
rows_worker:
    ld32 $m0, $m13, $m15, LAYERNORM_ROWS
    SPLIT
    brz $m2, done
    shl $m9, $m0, 2
    add $m9, $m9, -3
    ld32 $m7, $m13, $m15, LAYERNORM_OUT
    ld32 $m6, $m13, $m15, LAYERNORM_X
    ld32 $m8, $m13, $m15, LAYERNORM_COLUMNS
    shl $m1, $m1, 5
    add $m6, $m6, $m1
    add $m7, $m7, $m1
    and $m10, $m8, 15
    add $m2, $m2, -1
    PREPARE rows_tail
    ld32 $m8, $m13, $m15, LAYERNORM_COLUMNS
    shr $m8, $m8, 4
row:
    call $m11, pass_sum
    MEAN
    call $m11, pass_square
    DEVIATION
    ld32 $m0, $m13, $m15, LAYERNORM_SCALE
    ld32 $m1, $m13, $m15, LAYERNORM_BIAS
    call $m5, pass_apply
    add $m6, $m6, 32
    add $m7, $m7, 32
    brnzdec $m2, row
done:
    exitz $m15

// Few rows: $m2 rows - 1, $m5 worker 0's area, $m6..$m10 for the passes.
.p2align 3
wide_sum:
    OWN_PANELS LAYERNORM_X, LAYERNORM_OUT, LAYERNORM_ROWS, LAYERNORM_COLUMNS
    shl $m4, $m1, 5
    st32 $m4, $m12, $m15, RUN + 7  // bytes of scale and bias before ours
    mul $m4, $m4, $m9
    add $m6, $m6, $m4
    add $m7, $m7, $m4
    add $m2, $m9, -1
    shl $m9, $m9, 2
    add $m9, $m9, -3
    shl $m5, $m3, 8
    sub $m5, $m12, $m5
    KEEP_RUN
    PREPARE wide_ready
    ld32 $m8, $m12, $m15, RUN + 3
    add $m5, $m12, SUMS
sum_row:
    call $m11, pass_sum
    st32step $a0, $m15, $m5+=, 1
    add $m6, $m6, 32
    brnzdec $m2, sum_row
    exitz $m15

// $a0 = sum of the six values at $m4. Clobbers $a1.
.macro COMBINE
    ld32step $a0, $m15, $m4+=, AREA_WORDS
    ld32step $a1, $m15, $m4+=, AREA_WORDS
    { ld32step $a1, $m15, $m4+=, AREA_WORDS ; f32add $a0, $a0, $a1 }
    { ld32step $a1, $m15, $m4+=, AREA_WORDS ; f32add $a0, $a0, $a1 }
    { ld32step $a1, $m15, $m4+=, AREA_WORDS ; f32add $a0, $a0, $a1 }
    { ld32step $a1, $m15, $m4+=, AREA_WORDS ; f32add $a0, $a0, $a1 }
    f32add $a0, $a0, $a1
.endm

.p2align 3
wide_square:
    RESTORE_RUN
    add $m1, $m12, SQUARES
    setzi $a0, 8
    uput $FP_CLR, $a0
square_row:
    add $m4, $m5, SUMS
    COMBINE
    MEAN
    call $m11, pass_square
    st32step $a0, $m15, $m1+=, 1
    add $m6, $m6, 32
    add $m5, $m5, 4
    brnzdec $m2, square_row
    exitz $m15

.p2align 3
wide_apply:
    RESTORE_RUN
    ld32 $m7, $m12, $m15, RUN + 6
apply_row:
    add $m4, $m5, SUMS
    COMBINE
    MEAN
    add $m4, $m5, SQUARES
    COMBINE
    DEVIATION
    ld32 $m0, $m13, $m15, LAYERNORM_SCALE
    ld32 $m1, $m13, $m15, LAYERNORM_BIAS
    ld32 $m3, $m12, $m15, RUN + 7
    add $m0, $m0, $m3
    add $m1, $m1, $m3
    st32 $m5, $m12, $m15, RUN + 1
    call $m5, pass_apply
    ld32 $m5, $m12, $m15, RUN + 1
    add $m6, $m6, 32
    add $m7, $m7, 32
    add $m5, $m5, 4
    brnzdec $m2, apply_row
    exitz $m15

.if !HAS_RESIDUAL
// One row of whole panels. Own run of quads: $m1 bytes before it, $m2 quads - 1, both kept at
// ONE_RUN with $m5, worker 0's area.
.set ONE_SUMS, 32
.set ONE_PIVOT, 28 / 4         // minus the first element
.set ONE_RUN, 80 / 4

.p2align 3
one_sums:
    get $m3, $WSR
    ld32 $m0, $m13, $m15, LAYERNORM_COLUMNS
    ld32 $m4, $m13, $m15, LAYERNORM_X
    and $m3, $m3, 7
    shl $m5, $m3, 8
    sub $m5, $m12, $m5
    shr $m0, $m0, 2
    add $m2, $m0, 5
    setzi $m1, 43691
    mul $m2, $m2, $m1
    shr $m2, $m2, 18
    mul $m1, $m2, $m3
    { sub $m0, $m0, $m1 ; setzi $a0, 8 }
    { min $m2, $m2, $m0 ; uput $FP_CLR, $a0 }
    ld32 $a4, $m4, $m15, 0
    { add $m0, $m2, -1 ; f16v2tof32 $a0:1, $a4 }
    { shl $m1, $m1, 3 ; f32sub $a7, $azero, $a0 }
    { add $m6, $m4, $m1 ; or64 $a0:1, $azeros, $azeros }
    { st32 $a7, $m12, $m15, ONE_PIVOT ; or64 $a2:3, $azeros, $azeros }
    st32 $m1, $m12, $m15, ONE_RUN
    st32 $m0, $m12, $m15, ONE_RUN + 1
    st32 $m5, $m12, $m15, ONE_RUN + 2
    max $m2, $m2, $m15
    shl $m7, $m3, 3
.p2align 3
    { rpt $m2, 7 ; fnop }
    { ld64step $a4:5, $m15, $m6+=, 1 ; f32v2add $a2:3, $a2:3, $a0:1 }
    { nop ; f16v2tof32 $a0:1, $a4 }
    { nop ; f32v2add $a0:1, $a7:B, $a0:1 }
    { nop ; f32v2mac $a0:1, $a0:1 }
    { nop ; f32v2add $a2:3, $a2:3, $a0:1 }
    { nop ; f16v2tof32 $a0:1, $a5 }
    { nop ; f32v2add $a0:1, $a7:B, $a0:1 }
    { nop ; f32v2mac $a0:1, $a0:1 }
    { add $m7, $m7, $m5 ; f32v2add $a2:3, $a2:3, $a0:1 }
    f32v2gina $a0:1, $azeros, 0
    f32add $a2, $a2, $a3
    f32add $a3, $a0, $a1
    st64 $a2:3, $m7, $m15, ONE_SUMS / 8
    exitz $m15

.p2align 3
one_apply:
    ld32 $m2, $m12, $m15, ONE_RUN + 1
    ld32 $m5, $m12, $m15, ONE_RUN + 2
    brneg $m2, one_done
    ld64 $a0:1, $m5, $m15, ONE_SUMS / 8
    ld64 $a2:3, $m5, $m15, ONE_SUMS / 8 + 1
    { ld64 $a2:3, $m5, $m15, ONE_SUMS / 8 + 2 ; f32v2add $a0:1, $a0:1, $a2:3 }
    { ld64 $a2:3, $m5, $m15, ONE_SUMS / 8 + 3 ; f32v2add $a0:1, $a0:1, $a2:3 }
    { ld64 $a2:3, $m5, $m15, ONE_SUMS / 8 + 4 ; f32v2add $a0:1, $a0:1, $a2:3 }
    { ld64 $a2:3, $m5, $m15, ONE_SUMS / 8 + 5 ; f32v2add $a0:1, $a0:1, $a2:3 }
    { ld32 $a2, $m13, $m15, LAYERNORM_COLUMNS ; f32v2add $a0:1, $a0:1, $a2:3 }
    { ld32 $m6, $m13, $m15, LAYERNORM_X ; f32fromui32 $a2, $a2 }
    { ld32 $m0, $m13, $m15, LAYERNORM_SCALE ; f32oox $a2, $a2 }
    { ld32 $m3, $m13, $m15, LAYERNORM_BIAS ; f32v2mul $a0:1, $a2:B, $a0:1 }
    { ld32 $m7, $m13, $m15, LAYERNORM_OUT ; f32mul $a2, $a0, $a0 }
    { ld32 $a3, $m13, $m15, LAYERNORM_EPSILON ; f32sub $a1, $a1, $a2 }
    { ld32 $m1, $m12, $m15, ONE_RUN ; f32max $a1, $a1, $azero }
    { ld32 $a7, $m12, $m15, ONE_PIVOT ; f32add $a1, $a1, $a3 }
    { add $m6, $m6, $m1 ; f32oorx $a1, $a1 }
    { ld32step $a5, $m15, $m6+=, 1 ; uput $TAS, $a1 }
    { add $m0, $m0, $m1 ; f32sub $a0, $a7, $a0 }
    { add $m3, $m3, $m1 ; f32mul $a6, $a0, $a1 }
    { add $m7, $m7, $m1 ; setzi $a0, 8 }
    { add $m2, $m2, 1 ; uput $FP_CLR, $a0 }
    { shl $m2, $m2, 1 ; or $a7, $a6, $azero }
    f16v2tof32 $a2:3, $a5
    { ld32step $a5, $m15, $m6+=, 1 ; f32v2axpy $a0:1, $a2:3, $a6:7 }
    f16v2tof32 $a2:3, $a5
.p2align 3
    { rpt $m2, 6 ; fnop }
    { ld32step $a5, $m15, $m0+=, 1 ; f32v2axpy $a0:1, $a2:3, $a6:7 }
    { ld32step $a4, $m15, $m3+=, 1 ; f16v2tof32 $a2:3, $a5 }
    { ld32step $a5, $m15, $m6+=, 1 ; f32v2mul $a0:1, $a0:1, $a2:3 }
    { nop ; f16v2tof32 $a2:3, $a4 }
    { nop ; f32v2add $a0:1, $a0:1, $a2:3 }
    { nop ; f32v2tof16 $a0, $a0:1 }
    { st32step $a0, $m15, $m7+=, 1 ; f16v2tof32 $a2:3, $a5 }
one_done:
    exitz $m15
.endif

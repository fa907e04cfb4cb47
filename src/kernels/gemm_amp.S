// GEMM_AMP: weight-stationary product with the matrix unit, f16 in, f32 partials.
//
// Outer order: panel of 16 output columns, half of it (8 channels: one load of the coefficient
// store), K group of 16. For each group the supervisor loads 256 bytes of coefficients and
// launches the workers; each runs its run of rows through the unit, reading the partials of the
// group before and writing new ones in place (f32 panel: 64 bytes a row). The first group reads
// its partials from one row of zeros, or of the bias, again and again: the bias costs nothing
// and one loop serves all groups. After both halves the workers round the panel to f16 (or, with
// OUT_F32, it already lies in out).
//
// Few rows do not pay for the launches, one a K group. Then each worker takes a run of (row, pair
// of channels) and forms inner products of the whole depth with f16v4cmac (64 cycles a row, group
// and panel, against some 370 a group and panel): label `inner`.
//
// Rows: a worker's rows are a run. $m13 carries not a descriptor but the address of the group's
// panel of x (or of the panel of out when rounding): any 4-aligned value may be launched with.
//
// Worker area: 0 rows - 1; 4 byte offset of the first row in f16 panels; 8 the same in f32
// panels; 12 address of the row of first partials; then a record of 16 bytes for each of (first
// half, other groups) x (half 0, half 1): packed pointers (two words; A0 is relative to the
// panel of x, A1 = partials of the second row, A2 = results), address of the first row's
// partials. 80: pointer to the next panel's bias.
.set T_ROWS, 0
.set T_OFF16, 1
.set T_OFF32, 2
.set T_FIRST, 3
.set T_FIRST_0, 4
.set T_FIRST_1, 8
.set T_REST_0, 12
.set T_REST_1, 16
.set T_BIAS, 20

// Strides in doublewords: S0 = results to the next row; S1 = partials to the next row, which for
// the first group is the start of the same row again.
.set STRIDE_REST, 5 << 10 | 5
.set STRIDE_FIRST, 1021 << 10 | 5
// Selectors (x, partials, result) of phase 1, which ends a row of results.
.set PACE_RESULT, 1 << 4

.macro COEFFICIENTS_8 n
.if W_REGION1
    ld128putcs \n
    ld128putcs \n + 2
    ld128putcs \n + 4
    ld128putcs \n + 6
.else
    ld64putcs \n
    ld64putcs \n + 1
    ld64putcs \n + 2
    ld64putcs \n + 3
    ld64putcs \n + 4
    ld64putcs \n + 5
    ld64putcs \n + 6
    ld64putcs \n + 7
.endif
.endm

.macro COEFFICIENTS
    COEFFICIENTS_8 0
    COEFFICIENTS_8 8
    COEFFICIENTS_8 16
    COEFFICIENTS_8 24
.endm

// All K groups of one half. $m0 x, $m1 bytes of a panel of x, $m5 groups - 1.
.macro HALF first, rest, loop, end
    setzi $m7, \first
    setzi $m9, \rest
    mov $m3, $m0
    add $m4, $m5, -1
    COEFFICIENTS
    runall $m7, $m3, 0
    brz $m5, \end
\loop:
    add $m3, $m3, $m1
    sync 2
    COEFFICIENTS
    runall $m9, $m3, 0
    brnzdec $m4, \loop
\end:
    sync 2
.endm

.supervisor
.p2align 3
ENTRY
    ld32 $m1, $m2, $m15, GEMM_ROWS
    ld32 $m5, $m2, $m15, GEMM_GROUPS
    // Cycles a panel: rows (64 groups + 230) against 370 groups + 150, as cycles.c reckons.
    cmpult $m4, $m1, 6
    brz $m4, unit
    shl $m3, $m5, 6
    add $m3, $m3, 230
    mul $m3, $m3, $m1
    mul $m4, $m5, 370
    add $m4, $m4, 150
    cmpult $m4, $m3, $m4
    brz $m4, unit
    setzi $m3, inner
    runall $m3, $m2, 0
    sync 2
    br $m10
unit:
    setzi $m3, prepare
    runall $m3, $m2, 0
    ld32 $m3, $m2, $m15, GEMM_W
    ld32 $m0, $m2, $m15, GEMM_X
    ld32 $m6, $m2, $m15, GEMM_PANELS
    ld32 $m8, $m2, $m15, GEMM_OUT
    put $CCCSLOAD, $m3
    shl $m1, $m1, 5
    add $m5, $m5, -1
    add $m6, $m6, -1
    sync 2
panel:
.if OUT_F32
    setzi $m3, aim
    runall $m3, $m8, 0
    sync 2
.endif
    HALF first_0, rest_0, loop_0, end_0
    HALF first_1, rest_1, loop_1, end_1
.if OUT_F32
    add $m8, $m8, $m1
.else
    setzi $m7, round
    runall $m7, $m8, 0
    sync 2
.endif
    add $m8, $m8, $m1
    brnzdec $m6, panel
    br $m10

.worker
// Sixteen f16 of bias at $m7 become the row of first partials at $m8; $m7 moves on.
.macro BIAS_ROW
    ld64step $a0:1, $m15, $m7+=, 1
    ld64step $a2:3, $m15, $m7+=, 1
    f16v2tof32 $a4:5, $a0
    { st64 $a4:5, $m8, $m15, 0 ; f16v2tof32 $a4:5, $a1 }
    { st64 $a4:5, $m8, $m15, 1 ; f16v2tof32 $a4:5, $a2 }
    { st64 $a4:5, $m8, $m15, 2 ; f16v2tof32 $a4:5, $a3 }
    { st64 $a4:5, $m8, $m15, 3 ; fnop }
    ld64step $a0:1, $m15, $m7+=, 1
    ld64step $a2:3, $m15, $m7+=, 1
    f16v2tof32 $a4:5, $a0
    { st64 $a4:5, $m8, $m15, 4 ; f16v2tof32 $a4:5, $a1 }
    { st64 $a4:5, $m8, $m15, 5 ; f16v2tof32 $a4:5, $a2 }
    { st64 $a4:5, $m8, $m15, 6 ; f16v2tof32 $a4:5, $a3 }
    st64 $a4:5, $m8, $m15, 7
    st32 $m7, $m12, $m15, T_BIAS
.endm

// Launch with the descriptor: own rows; worker 5, which never has more rows than another, makes
// the row of first partials.
.p2align 3
prepare:
    ld32 $m0, $m13, $m15, GEMM_ROWS
    SPLIT
    add $m2, $m2, -1
    shl $m6, $m1, 5
    shl $m7, $m1, 6
    ld32 $m8, $m13, $m15, GEMM_SCRATCH
    st32 $m2, $m12, $m15, T_ROWS
    st32 $m6, $m12, $m15, T_OFF16
    st32 $m7, $m12, $m15, T_OFF32
    st32 $m8, $m12, $m15, T_FIRST
.if !OUT_F32
    ACT_CONSTANTS
.endif
    cmpeq $m3, $m3, 5
    brz $m3, prepared
.if HAS_BIAS
    ld32 $m7, $m13, $m15, GEMM_BIAS
    BIAS_ROW
.else
    st64 $azeros, $m8, $m15, 0
    st64 $azeros, $m8, $m15, 1
    st64 $azeros, $m8, $m15, 2
    st64 $azeros, $m8, $m15, 3
    st64 $azeros, $m8, $m15, 4
    st64 $azeros, $m8, $m15, 5
    st64 $azeros, $m8, $m15, 6
    st64 $azeros, $m8, $m15, 7
.endif
prepared:
.if OUT_F32
    exitz $m15
// Launch with the address of an f32 panel: points the records at it.
aim:
    mov $m0, $m13
.else
    add $m0, $m8, 64
.endif
    ld32 $m3, $m12, $m15, T_OFF32
    ld32 $m4, $m12, $m15, T_OFF16
    ld32 $m5, $m12, $m15, T_FIRST
    add $m0, $m0, $m3
    tapack $m6:7, $m4, $m5, $m0
    st32 $m6, $m12, $m15, T_FIRST_0
    st32 $m7, $m12, $m15, T_FIRST_0 + 1
    st32 $m5, $m12, $m15, T_FIRST_0 + 2
    add $m1, $m0, 64
    tapack $m6:7, $m4, $m1, $m0
    st32 $m6, $m12, $m15, T_REST_0
    st32 $m7, $m12, $m15, T_REST_0 + 1
    st32 $m0, $m12, $m15, T_REST_0 + 2
    add $m0, $m0, 32
    add $m5, $m5, 32
    tapack $m6:7, $m4, $m5, $m0
    st32 $m6, $m12, $m15, T_FIRST_1
    st32 $m7, $m12, $m15, T_FIRST_1 + 1
    st32 $m5, $m12, $m15, T_FIRST_1 + 2
    add $m1, $m1, 32
    tapack $m6:7, $m4, $m1, $m0
    st32 $m6, $m12, $m15, T_REST_1
    st32 $m7, $m12, $m15, T_REST_1 + 1
    st32 $m0, $m12, $m15, T_REST_1 + 2
    exitz $m15

// Entries of a K group: fetch the record, go on in `run_rows`.
.macro GROUP_ENTRY record, stride
    ld32 $m2, $m12, $m15, T_ROWS
    ld32 $m3, $m12, $m15, \record + 2
    ld32 $m0, $m12, $m15, \record
    ld32 $m1, $m12, $m15, \record + 1
    setzi $m4, \stride
.endm
.p2align 3
first_0:
    GROUP_ENTRY T_FIRST_0, STRIDE_FIRST
    bri run_rows
.p2align 3
first_1:
    GROUP_ENTRY T_FIRST_1, STRIDE_FIRST
    bri run_rows
.p2align 3
rest_1:
    GROUP_ENTRY T_REST_1, STRIDE_REST
    bri run_rows
.p2align 3
rest_0:
    GROUP_ENTRY T_REST_0, STRIDE_REST

.p2align 3
run_rows:
    brneg $m2, no_rows
    { add $m0, $m0, $m13 ; setzi $a6, 8 }
    AMP_ROWS f16v4sisoamp, PACE_RESULT
no_rows:
    exitz $m15

.if !OUT_F32
// Launch with the address of the panel of out: activation and rounding of the f32 panel.
.p2align 3
round:
    ld32 $m2, $m12, $m15, T_ROWS
    ld32 $m0, $m12, $m15, T_OFF16
    ld32 $m6, $m12, $m15, T_REST_0 + 2
    brneg $m2, rounded
    add $m7, $m13, $m0
    shl $m2, $m2, 2
    add $m2, $m2, 3
.if ACT == ACT_NONE
    ld128step $a0:3, $m15, $m6+=, 1
    f32v4tof16 $a4:5, $a0:3
.p2align 3
    { rpt $m2, 1 ; fnop }
    { ld128step $a0:3, $m15, $m6+=, 1 ; fnop }
    { st64step $a4:5, $m15, $m7+=, 1 ; f32v4tof16 $a4:5, $a0:3 }
    st64step $a4:5, $m15, $m7+=, 1
.else
.p2align 3
round_quad:
    ld128step $a0:3, $m15, $m6+=, 1
    FINISH_QUAD $m7, 1
    brnzdec $m2, round_quad
.endif
rounded:
.if HAS_BIAS
    get $m3, $WSR
    and $m3, $m3, 7
    cmpeq $m3, $m3, 5
    brz $m3, bias_done
    ld32 $m7, $m12, $m15, T_BIAS
    ld32 $m8, $m12, $m15, T_FIRST
    BIAS_ROW
bias_done:
.endif
    exitz $m15
.endif

// Few rows: launch with the descriptor. Items are (row, pair of channels), pairs innermost.
// \result = inner product of x at $m3 and the channel at $m0, over $m10 groups. A bundle loads
// one step and multiplies the step before, so nothing past the end is read.
.macro DOT result
.p2align 3
    { tapack $m4:5, $m3, $m0, $m15 ; or64 $a0:1, $azeros, $azeros }
    { rpt $m10, 3 ; or64 $a2:3, $azeros, $azeros }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m9, 0 ; f16v4cmac $a0:1, $a2:3 }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m9, 0 ; f16v4cmac $a0:1, $a2:3 }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m9, 0 ; f16v4cmac $a0:1, $a2:3 }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m9, 2 << 2 | 1 ; f16v4cmac $a0:1, $a2:3 }
    f16v4cmac $a0:1, $a2:3
    f32v2gina $a0:1, $azeros, 0
    f32add \result, $a0, $a1
.endm

.if OUT_F32
.set ROW_SHIFT, 6              // bytes of a row of out in a panel
.else
.set ROW_SHIFT, 5
.endif

.p2align 3
inner:
    ld32 $m7, $m13, $m15, GEMM_PANELS
    ld32 $m8, $m13, $m15, GEMM_ROWS
    shl $m7, $m7, 3
    mul $m0, $m7, $m8
    SPLIT
    brz $m2, inner_done
.if !OUT_F32
    ACT_CONSTANTS
.endif
    { setzi $m6, 0 ; setzi $a0, 8 }
    { shl $m9, $m8, 2 ; uput $FP_CLR, $a0 }
    add $m9, $m9, -3           // x: from one panel's row to the next panel's
    setzi $m3, 29 << 10        // w: from one group's channel to the next group's
    or $m9, $m9, $m3
    ld32 $m10, $m13, $m15, GEMM_GROUPS
inner_find:
    cmpult $m3, $m1, $m7
    brnz $m3, inner_row
    sub $m1, $m1, $m7
    add $m6, $m6, 1
    bri inner_find
// Addresses from scratch: $m3 row of x, $m0 first channel of the pair, $m11 result.
inner_row:
    ld32 $m3, $m13, $m15, GEMM_X
    shl $m4, $m6, 5
    add $m3, $m3, $m4
    ld32 $m5, $m13, $m15, GEMM_W
    shr $m0, $m1, 2
    mul $m0, $m0, $m10
    shl $m0, $m0, 8
    and $m4, $m1, 3
    shl $m4, $m4, 6
    add $m0, $m0, $m4
    add $m0, $m0, $m5
    ld32 $m5, $m13, $m15, GEMM_OUT
    shr $m11, $m1, 3
    mul $m11, $m11, $m8
    add $m11, $m11, $m6
    shl $m11, $m11, ROW_SHIFT
    and $m4, $m1, 7
    shl $m4, $m4, ROW_SHIFT - 3
    add $m11, $m11, $m4
    add $m11, $m11, $m5
.p2align 3
inner_item:
    DOT $a6
    add $m0, $m0, 32
    DOT $a7
.if HAS_BIAS
    ld32 $m5, $m13, $m15, GEMM_BIAS
    shl $m4, $m1, 2
    ld32 $a2, $m5, $m4, 0
    f16v2tof32 $a2:3, $a2
    f32v2add $a0:1, $a6:7, $a2:3
.else
    or64 $a0:1, $a6:7, $azeros
.endif
.if OUT_F32
    st64step $a0:1, $m15, $m11+=, 1
.else
    ACT_PAIR
    f32v2tof16 $a0, $a0:1
    st32step $a0, $m15, $m11+=, 1
.endif
    add $m2, $m2, -1
    brz $m2, inner_done
    add $m1, $m1, 1
    cmpult $m4, $m1, $m7
    brz $m4, inner_wrap
    add $m0, $m0, 32
    and $m4, $m1, 3
    brnz $m4, inner_item
    add $m4, $m10, -1          // next block of 8 channels
    shl $m4, $m4, 8
    add $m0, $m0, $m4
    and $m4, $m1, 7
    brnz $m4, inner_item
    add $m4, $m8, -1           // next panel of out
    shl $m4, $m4, ROW_SHIFT
    add $m11, $m11, $m4
    bri inner_item
inner_wrap:
    setzi $m1, 0
    add $m6, $m6, 1
    bri inner_row
inner_done:
    exitz $m15

// GEMM_F16: weight-stationary product with both sets of the matrix unit: 16 channels a pass, four
// times 64 products a row and K group, f16 partials between groups. 24 tile cycles a six rows and
// group, which is the unit's peak; a launch and 512 bytes of coefficients add about 185 a group.
//
// Outer order: panel of 16 output columns, K group of 16. The partials of a panel lie where its
// result will: 32 bytes a row, read and written in place. The first group reads its partials from
// the panel's row of bias, or one row of zeros, again and again; with ACCUMULATES from out itself.
// After the last group the panel holds the product rounded to f16; an activation passes over it.
//
// The first group of a panel is launched with the address of the panel of out, the others with
// that of the group's panel of x: any 4-aligned value may be launched with.
//
// Worker area: the words of a product (common.S).
F16_PRODUCT_NAMES

.supervisor
.p2align 3
ENTRY
    setzi $m3, prepare
    runall $m3, $m2, 0
    ld32 $m3, $m2, $m15, GEMM_W
    ld32 $m1, $m2, $m15, GEMM_ROWS
    ld32 $m5, $m2, $m15, GEMM_GROUPS
    ld32 $m0, $m2, $m15, GEMM_X
    ld32 $m6, $m2, $m15, GEMM_PANELS
    ld32 $m8, $m2, $m15, GEMM_OUT
    put $CCCSLOAD, $m3
    shl $m1, $m1, 5
    add $m5, $m5, -1
    add $m6, $m6, -1
    setzi $m7, first
    setzi $m9, rest
    sync 2
panel:
    mov $m3, $m0
    add $m4, $m5, -1
    F16_COEFFICIENTS W_REGION1
    runall $m7, $m8, 0
    brz $m5, product
group:
    add $m3, $m3, $m1
    sync 2
    F16_COEFFICIENTS W_REGION1
    runall $m9, $m3, 0
    brnzdec $m4, group
product:
    sync 2
.if ACT != ACT_NONE
    setzi $m3, activate
    runall $m3, $m8, 0
    sync 2
.endif
    add $m8, $m8, $m1
    brnzdec $m6, panel
    br $m10

.worker
// Launch with the descriptor: own rows; worker 5 makes the row of zeros.
.p2align 3
prepare:
    ld32 $m0, $m13, $m15, GEMM_ROWS
    SPLIT
    add $m2, $m2, -1
    shl $m6, $m1, 5
    ld32 $m8, $m13, $m15, GEMM_X
    add $m8, $m8, $m6
    st32 $m2, $m12, $m15, T_ROWS
    st32 $m6, $m12, $m15, T_OFFSET
    st32 $m8, $m12, $m15, T_X
.if HAS_BIAS
    ld32 $m8, $m13, $m15, GEMM_BIAS
    st32 $m8, $m12, $m15, T_FIRST
.elseif !ACCUMULATES
    ld32 $m8, $m13, $m15, GEMM_SCRATCH
    st32 $m8, $m12, $m15, T_FIRST
    cmpeq $m3, $m3, 5
    brz $m3, prepared
    st64 $azeros, $m8, $m15, 0
    st64 $azeros, $m8, $m15, 1
    st64 $azeros, $m8, $m15, 2
    st64 $azeros, $m8, $m15, 3
prepared:
.endif
    ACT_CONSTANTS
    exitz $m15

.p2align 3
first:
    ld32 $m2, $m12, $m15, T_ROWS
    ld32 $m6, $m12, $m15, T_OFFSET
    brneg $m2, no_rows
    ld32 $m7, $m12, $m15, T_X
    add $m5, $m13, $m6
    add $m3, $m5, 32
    tapack $m0:1, $m6, $m3, $m5
    st32 $m0, $m12, $m15, T_REST
    st32 $m1, $m12, $m15, T_REST + 1
    st32 $m5, $m12, $m15, T_OUT
.if ACCUMULATES
    tapack $m0:1, $m7, $m3, $m5
    mov $m3, $m5
    setzi $m4, STRIDE_REST
.else
    ld32 $m3, $m12, $m15, T_FIRST
    setzi $m4, STRIDE_FIRST
    tapack $m0:1, $m7, $m3, $m5
.if HAS_BIAS
    add $m6, $m3, 32
    st32 $m6, $m12, $m15, T_FIRST
.endif
.endif
    bri run_rows

.p2align 3
rest:
    F16_REST 0
F16_RUN_ROWS

.if ACT != ACT_NONE
// Launch after the last group: the activation of the own rows, in place.
.p2align 3
activate:
    ld32 $m2, $m12, $m15, T_ROWS
    brneg $m2, activated
    ld32 $m6, $m12, $m15, T_OUT
    shl $m2, $m2, 2
    mov $m7, $m6
.if ACT == ACT_RELU
    add $m2, $m2, 3
    ld64step $a0:1, $m15, $m6+=, 1
    f16v4max $a2:3, $a0:1, $azeros
.p2align 3
    { rpt $m2, 1 ; fnop }
    { ld64step $a0:1, $m15, $m6+=, 1 ; fnop }
    { st64step $a2:3, $m15, $m7+=, 1 ; f16v4max $a2:3, $a0:1, $azeros }
    st64step $a2:3, $m15, $m7+=, 1
.else
    add $m2, $m2, 3
.p2align 3
activate_quad:
    ld64step $a4:5, $m15, $m6+=, 1
    f16v2tof32 $a0:1, $a4
    f16v2tof32 $a2:3, $a5
    FINISH_QUAD $m7, 1
    brnzdec $m2, activate_quad
.endif
activated:
    exitz $m15
.endif

// GEMM_ROW: out[C] = act(x[16 G] . w + bias) + residual for one row, by inner products in f32, one
// rounding. Weights are [C][16 G], a channel after the other. Each worker takes a run of pairs of
// channels: f16v4cmac multiplies 4 a bundle, 4 G bundles a channel and 2 more, in which its two
// sums are fetched beside the first load of the next channel. x goes back to its start by plain
// addition to the low bits of its packed address; w runs on.
//
// Reads 8 bytes past the end of w: the first load of a channel that is not there.
.macro NEXT_STEP aux:vararg
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m15, 0 ; \aux }
.endm

// Channel whose first quads are in $a0:3. Leaves the halves of its sum in $a4:5.
.macro CHANNEL aux:vararg
.p2align 3
    { rpt $m10, 0 ; \aux }
    NEXT_STEP f16v4cmac $a0:1, $a2:3
    { add $m4, $m4, $m8 ; f16v4cmac $a0:1, $a2:3 }
.endm

// f16 pair at \from in $a4, once the halves in $a4:5 are added up.
.macro LAST_SUM from
    { ld32step $a4, $m15, \from+=, 1 ; f32add $a7, $a4, $a5 }
    f16v2tof32 $a4:5, $a4
.endm

    LAUNCH_ONCE
    get $m3, $WSR
    ld32 $m0, $m13, $m15, GEMM_ROW_PAIRS
    and $m3, $m3, 7
    add $m2, $m0, 5
    setzi $m1, 43691
    mul $m2, $m2, $m1
    shr $m2, $m2, 18               // pairs a worker, the last ones fewer
    mul $m1, $m2, $m3
    sub $m0, $m0, $m1
    min $m2, $m2, $m0
    add $m2, $m2, -1
    brneg $m2, done
    ld32 $m10, $m13, $m15, GEMM_ROW_GROUPS
    ld32 $m3, $m13, $m15, GEMM_ROW_X
    ld32 $m0, $m13, $m15, GEMM_ROW_W
    ld32 $m7, $m13, $m15, GEMM_ROW_OUT
    mul $m6, $m1, $m10
    { shl $m6, $m6, 6 ; setzi $a0, 8 }
    { add $m0, $m0, $m6 ; uput $FP_CLR, $a0 }
    shl $m1, $m1, 2
    add $m7, $m7, $m1
    tapack $m4:5, $m3, $m0, $m15
    shl $m8, $m10, 5
    sub $m8, $m15, $m8
    shl $m10, $m10, 2
    add $m10, $m10, -1
.if HAS_BIAS
    ld32 $m6, $m13, $m15, GEMM_ROW_BIAS
    add $m6, $m6, $m1
.endif
.if HAS_RESIDUAL
    ld32 $m9, $m13, $m15, GEMM_ROW_RESIDUAL
    add $m9, $m9, $m1
.endif
    ACT_CONSTANTS
.if ACT == ACT_NONE
    NEXT_STEP fnop
.endif
.p2align 3
pair:
.if ACT != ACT_NONE
    NEXT_STEP fnop
.endif
    CHANNEL fnop
    NEXT_STEP f32v2gina $a4:5, $azeros, 0
    CHANNEL f32add $a6, $a4, $a5
.if ACT == ACT_NONE
    NEXT_STEP f32v2gina $a4:5, $azeros, 0
.if HAS_BIAS
    LAST_SUM $m6
.if HAS_RESIDUAL
    { ld32step $a4, $m15, $m9+=, 1 ; f32v2add $a6:7, $a6:7, $a4:5 }
    f16v2tof32 $a4:5, $a4
.endif
    f32v2add $a6:7, $a6:7, $a4:5
.else
.if HAS_RESIDUAL
    LAST_SUM $m9
    f32v2add $a6:7, $a6:7, $a4:5
.else
    f32add $a7, $a4, $a5
.endif
.endif
    f32v2tof16 $a4, $a6:7
    st32step $a4, $m15, $m7+=, 1
.else
    f32v2gina $a4:5, $azeros, 0
.if HAS_BIAS
    LAST_SUM $m6
    f32v2add $a0:1, $a6:7, $a4:5
.else
    f32add $a7, $a4, $a5
    or64 $a0:1, $a6:7, $azeros
.endif
    ACT_PAIR
.if HAS_RESIDUAL
    ld32step $a2, $m15, $m9+=, 1
    f16v2tof32 $a2:3, $a2
    f32v2add $a0:1, $a0:1, $a2:3
.endif
    f32v2tof16 $a0, $a0:1
    st32step $a0, $m15, $m7+=, 1
.endif
    brnzdec $m2, pair
done:
    exitz $m15

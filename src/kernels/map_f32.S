// MAP_F32: out = act(op(x)) over 16 n elements of float32. Pairs are dealt out in runs, one a
// worker, so out may equal x. A plain loop: its bundles are those of the operation, the activation
// and six more.
.macro EACH op
    \op $a0, $a0
    \op $a1, $a1
.endm

    LAUNCH_ONCE
    ld32 $m0, $m13, $m15, MAP_N
    shl $m0, $m0, 3
    OWN_RUN MAP_X, MAP_OUT
    ACT_CONSTANTS
.p2align 3
loop:
    ld64step $a0:1, $m15, $m6+=, 1
.if OP == MAP_AFFINE
    ld32 $a6, $m13, $m15, MAP_A
    { ld32 $a7, $m13, $m15, MAP_B ; f32v2mul $a0:1, $a6:B, $a0:1 }
    f32v2add $a0:1, $a7:B, $a0:1
.endif
.if OP == MAP_NEG
    f32v2sub $a0:1, $azeros, $a0:1
.endif
.if OP == MAP_EXP
    EACH f32exp
.endif
.if OP == MAP_SQRT
    EACH f32sqrt
.endif
.if OP == MAP_RECIPROCAL
    EACH f32oox
.endif
.if OP == MAP_RSQRT
    EACH f32oorx
.endif
.if OP == MAP_SQUARE
    f32v2mul $a0:1, $a0:1, $a0:1
.endif
.if OP == MAP_CUBE
    f32v2mul $a2:3, $a0:1, $a0:1
    f32v2mul $a0:1, $a0:1, $a2:3
.endif
.if OP == MAP_POW
    ld32 $a2, $m13, $m15, MAP_A
    or $a3, $a2, $azero
    POW_ONE $a0, $a2
    POW_ONE $a1, $a3
.endif
    ACT_PAIR
    st64step $a0:1, $m15, $m7+=, 1
    brnzdec $m2, loop
done:
    exitz $m15

// UNARY: out = act(x) over 4 n elements. Quads of 4 elements are dealt out in runs, one a
// worker, so out may equal x. Without transcendentals the values never leave f16.
    LAUNCH_ONCE
    ld32 $m0, $m13, $m15, UNARY_QUADS
    OWN_RUN UNARY_X, UNARY_OUT
.if ACT == ACT_NONE || ACT == ACT_RELU
    ld64step $a0:1, $m15, $m6+=, 1
.if ACT == ACT_RELU
    f16v4max $a2:3, $a0:1, $azeros
.else
    or64 $a2:3, $a0:1, $azeros
.endif
.p2align 3
    { rpt $m2, 1 ; fnop }
    { ld64step $a0:1, $m15, $m6+=, 1 ; fnop }
.if ACT == ACT_RELU
    { st64step $a2:3, $m15, $m7+=, 1 ; f16v4max $a2:3, $a0:1, $azeros }
.else
    { st64step $a2:3, $m15, $m7+=, 1 ; or64 $a2:3, $a0:1, $azeros }
.endif
    st64step $a2:3, $m15, $m7+=, 1
.else
    ACT_CONSTANTS
.p2align 3
loop:
    ld64step $a4:5, $m15, $m6+=, 1
    f16v2tof32 $a0:1, $a4
    f16v2tof32 $a2:3, $a5
    FINISH_QUAD $m7, 1
    brnzdec $m2, loop
.endif
done:
    exitz $m15

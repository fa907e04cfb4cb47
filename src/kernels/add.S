// ADD: out = act(a + b) over 16 n elements. Quads are dealt out in runs, one a worker, so out may
// equal a or b. f16v4add rounds the exact sum once, as the f32 path does.
    LAUNCH_ONCE
    ld32 $m0, $m13, $m15, ADD_N
    shl $m0, $m0, 2
    SPLIT
    brz $m2, done
    ld32 $m6, $m13, $m15, ADD_A
    ld32 $m8, $m13, $m15, ADD_B
    ld32 $m7, $m13, $m15, ADD_OUT
    shl $m1, $m1, 3
    add $m6, $m6, $m1
    add $m8, $m8, $m1
    add $m7, $m7, $m1
.if ACT == ACT_NONE || ACT == ACT_RELU
    // Three bundles a quad: the sum of one turn is stored in the next.
    add $m2, $m2, -1
    ld64step $a0:1, $m15, $m6+=, 1
    ld64step $a2:3, $m15, $m8+=, 1
    f16v4add $a4:5, $a0:1, $a2:3
.p2align 3
    { rpt $m2, 2 ; fnop }
    { ld64step $a0:1, $m15, $m6+=, 1 ; fnop }
.if ACT == ACT_RELU
    { ld64step $a2:3, $m15, $m8+=, 1 ; f16v4max $a6:7, $a4:5, $azeros }
    { st64step $a6:7, $m15, $m7+=, 1 ; f16v4add $a4:5, $a0:1, $a2:3 }
    f16v4max $a4:5, $a4:5, $azeros
.else
    { ld64step $a2:3, $m15, $m8+=, 1 ; fnop }
    { st64step $a4:5, $m15, $m7+=, 1 ; f16v4add $a4:5, $a0:1, $a2:3 }
.endif
    st64step $a4:5, $m15, $m7+=, 1
.else
    add $m2, $m2, -1
    ACT_CONSTANTS
.p2align 3
loop:
    ld64step $a4:5, $m15, $m6+=, 1
    { ld64step $a6:7, $m15, $m8+=, 1 ; f16v2tof32 $a0:1, $a4 }
    SUM_QUADS
    FINISH_QUAD $m7, 1
    brnzdec $m2, loop
.endif
done:
    exitz $m15

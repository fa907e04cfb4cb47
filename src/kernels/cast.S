// CAST: 16 n elements from float16 to float32 or back, rounded to nearest. Quads are dealt out in
// runs, one a worker; out may not overlap x.
    LAUNCH_ONCE
    ld32 $m0, $m13, $m15, CAST_N
    shl $m0, $m0, 2
    SPLIT
    brz $m2, done
    ld32 $m6, $m13, $m15, CAST_X
    ld32 $m7, $m13, $m15, CAST_OUT
    shl $m3, $m1, 3
    shl $m4, $m1, 4
.if OP == CAST_WIDEN
    add $m6, $m6, $m3
    add $m7, $m7, $m4
.p2align 3
    { rpt $m2, 3 ; fnop }
    { ld64step $a4:5, $m15, $m6+=, 1 ; fnop }
    { nop ; f16v2tof32 $a0:1, $a4 }
    { st64step $a0:1, $m15, $m7+=, 1 ; f16v2tof32 $a2:3, $a5 }
    { st64step $a2:3, $m15, $m7+=, 1 ; fnop }
.else
    add $m6, $m6, $m4
    add $m7, $m7, $m3
.p2align 3
    { rpt $m2, 3 ; fnop }
    { ld64step $a0:1, $m15, $m6+=, 1 ; fnop }
    { ld64step $a2:3, $m15, $m6+=, 1 ; fnop }
    { nop ; f32v4tof16 $a4:5, $a0:3 }
    { st64step $a4:5, $m15, $m7+=, 1 ; fnop }
.endif
done:
    exitz $m15

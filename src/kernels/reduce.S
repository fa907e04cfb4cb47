// REDUCE: out[R][16 P] = act(sum of `parts` f32 partials + bias), added in ascending part order.
// With IN_F16 the parts are f16, the sums still f32: 4 bundles a quad and part against 2, for half
// the bytes. Work is dealt out as in ADD_ROW. The part stride is a multiple of 8 bytes.
    LAUNCH_ONCE
    ld32 $m8, $m13, $m15, REDUCE_ROWS
    SPLIT_MATRIX REDUCE_PANELS, done
    ACT_CONSTANTS
    ld32 $m9, $m13, $m15, REDUCE_PARTS
    add $m9, $m9, -1
    ld32 $m10, $m13, $m15, REDUCE_STRIDE
    shr $m10, $m10, 3
quad:
    QUAD_OFFSET
    ld32 $m5, $m13, $m15, REDUCE_OUT
    ld32 $m4, $m13, $m15, REDUCE_IN
    add $m5, $m5, $m0
.if !IN_F16
    shl $m0, $m0, 1
.endif
    add $m4, $m4, $m0
.if HAS_BIAS
    ld32 $m0, $m13, $m15, REDUCE_BIAS
    shl $m3, $m6, 3
    add $m3, $m3, $m0
.endif
    add $m11, $m2, -1
.p2align 3
row:
    mov $m0, $m4
.if IN_F16
    { ld64step $a6:7, $m15, $m0+=, $m10 ; or64 $a0:1, $azeros, $azeros }
    or64 $a2:3, $azeros, $azeros
.p2align 3
    { rpt $m9, 3 ; fnop }
    { nop ; f16v2tof32 $a4:5, $a6 }
    { nop ; f32v2add $a0:1, $a0:1, $a4:5 }
    { ld64step $a6:7, $m15, $m0+=, $m10 ; f16v2tof32 $a4:5, $a7 }
    { nop ; f32v2add $a2:3, $a2:3, $a4:5 }
    f16v2tof32 $a4:5, $a6
    f32v2add $a0:1, $a0:1, $a4:5
    f16v2tof32 $a4:5, $a7
    { add $m4, $m4, 32 ; f32v2add $a2:3, $a2:3, $a4:5 }
.if HAS_BIAS
    ld64 $a6:7, $m3, $m15, 0
    f16v2tof32 $a4:5, $a6
    f32v2add $a0:1, $a0:1, $a4:5
    f16v2tof32 $a4:5, $a7
    f32v2add $a2:3, $a2:3, $a4:5
.endif
.else
    ld64 $a2:3, $m15, $m0, 1
    { ld64step $a0:1, $m15, $m0+=, $m10 ; or64 $a4:5, $azeros, $azeros }
.p2align 3
    { rpt $m9, 1 ; fnop }
    { ld64 $a6:7, $m15, $m0, 1 ; f32v2add $a0:1, $a0:1, $a4:5 }
    { ld64step $a4:5, $m15, $m0+=, $m10 ; f32v2add $a2:3, $a2:3, $a6:7 }
.if HAS_BIAS
    { ld64 $a6:7, $m3, $m15, 0 ; f32v2add $a0:1, $a0:1, $a4:5 }
    f16v2tof32 $a4:5, $a6
    f32v2add $a0:1, $a0:1, $a4:5
    f16v2tof32 $a4:5, $a7
    { add $m4, $m4, 64 ; f32v2add $a2:3, $a2:3, $a4:5 }
.else
    { add $m4, $m4, 64 ; f32v2add $a0:1, $a0:1, $a4:5 }
.endif
.endif
    FINISH_QUAD $m5, 4
    brnzdec $m11, row
    add $m6, $m6, 1
    add $m7, $m7, -1
    brnz $m7, quad
done:
    exitz $m15

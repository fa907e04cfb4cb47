// MAP: out = act(op(x)) over 16 n elements, in f32, one rounding. Quads of 4 elements are dealt
// out in runs, one a worker, so out may equal x. 3 bundles a quad carry load, store, conversions
// and rounding; the operation's own (2 or 4, or 4 slow functions of 3 to 5 cycles) come on top:
// bound by the aux pipe.
//
// The exponential's argument is held at 88, where f32 still is finite: the result saturates.
//
// Worker area: 0..7 two f32 of 88.
    LAUNCH_ONCE
    ld32 $m0, $m13, $m15, MAP_N
    shl $m0, $m0, 2
    OWN_RUN MAP_X, MAP_OUT
.if OP == MAP_EXP
    or $a0, $azero, 0x42b00000
    st32 $a0, $m12, $m15, 0
    st32 $a0, $m12, $m15, 1
.endif

.macro EACH op
    { nop ; \op $a0, $a0 }
    { nop ; \op $a1, $a1 }
    { nop ; \op $a2, $a2 }
    { nop ; \op $a3, $a3 }
.endm

// Second half of a quad's conversion, and the operation on $a0:3. Clobbers $a4..$a7. Bundles only.
.macro OPERATE
.if OP == MAP_AFFINE
    { ld32 $a6, $m13, $m15, MAP_A ; f16v2tof32 $a2:3, $a5 }
    { ld32 $a7, $m13, $m15, MAP_B ; f32v2mul $a0:1, $a6:B, $a0:1 }
    { nop ; f32v2mul $a2:3, $a6:B, $a2:3 }
    { nop ; f32v2add $a0:1, $a7:B, $a0:1 }
    { nop ; f32v2add $a2:3, $a7:B, $a2:3 }
.elseif OP == MAP_EXP
    { ld64 $a6:7, $m12, $m15, 0 ; f16v2tof32 $a2:3, $a5 }
    { nop ; f32v2min $a0:1, $a0:1, $a6:7 }
    { nop ; f32v2min $a2:3, $a2:3, $a6:7 }
    EACH f32exp
.else
    { nop ; f16v2tof32 $a2:3, $a5 }
.endif
.if OP == MAP_NEG
    { nop ; f32v2sub $a0:1, $azeros, $a0:1 }
    { nop ; f32v2sub $a2:3, $azeros, $a2:3 }
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
    { nop ; f32v2mul $a0:1, $a0:1, $a0:1 }
    { nop ; f32v2mul $a2:3, $a2:3, $a2:3 }
.endif
.if OP == MAP_CUBE
    { nop ; f32v2mul $a4:5, $a0:1, $a0:1 }
    { nop ; f32v2mul $a0:1, $a0:1, $a4:5 }
    { nop ; f32v2mul $a4:5, $a2:3, $a2:3 }
    { nop ; f32v2mul $a2:3, $a2:3, $a4:5 }
.endif
.if ACT == ACT_RELU
    { nop ; f32v2max $a0:1, $a0:1, $azeros }
    { nop ; f32v2max $a2:3, $a2:3, $azeros }
.endif
.endm

.if ACT == ACT_NONE || ACT == ACT_RELU
    // A quad is rounded and stored in the turn after its own.
    ld64step $a4:5, $m15, $m6+=, 1
    f16v2tof32 $a0:1, $a4
    OPERATE
.p2align 3
    { rpt $m2, (body_end - body) / 8 - 1 ; fnop }
body:
    { ld64step $a4:5, $m15, $m6+=, 1 ; f32v4tof16 $a6:7, $a0:3 }
    { st64step $a6:7, $m15, $m7+=, 1 ; f16v2tof32 $a0:1, $a4 }
    OPERATE
body_end:
    f32v4tof16 $a6:7, $a0:3
    st64step $a6:7, $m15, $m7+=, 1
.else
    ACT_CONSTANTS
.p2align 3
loop:
    ld64step $a4:5, $m15, $m6+=, 1
    f16v2tof32 $a0:1, $a4
    OPERATE
    FINISH_QUAD $m7, 1
    brnzdec $m2, loop
.endif
done:
    exitz $m15

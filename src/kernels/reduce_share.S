// REDUCE_SHARE: out[R][16 P] = act(own + `parts` received ones + bias), own first, then the others
// in ascending order, all sums in f32 by the accumulators. The own part lies in a larger block:
// its panels are `own_panel` bytes apart; received parts and out are packed.
//
// A unit is 16 bytes of a part: with IN_F16 8 columns (f16v8acc), else 4 (f32v4acc). Units of
// columns and rows are dealt out as in ADD_ROW; a unit's rows are one loop, a row's parts another
// of two bundles each. Accumulators are read in pairs, which puts zeros in their place.
.if IN_F16
.set UNIT_SHIFT, 1        // units of a row of a panel, as a shift
.set ROW_BYTES, 32        // of a part
.set OUT_BYTES, 16        // of a unit in out
.else
.set UNIT_SHIFT, 2
.set ROW_BYTES, 64
.set OUT_BYTES, 8
.endif

// The tanh form of GELU of an f16 quad in f16, x / 2 + x / 2 tanh(x (c1 + c0 x^2)): one rounding an
// operation, as befits sums that were f16 too. x^2 saturates, and so does tanh. Clobbers $a4..$a7.
.set HALVES, CONST_PAIR + 4
.macro HALVES_CONSTANT index, bits
    setzi $a0, (\bits * 0x10001) & 0xfffff
    or $a0, $a0, (\bits * 0x10001) & 0xfff00000
    st32 $a0, $m12, $m15, 2 * (HALVES + \index)
    st32 $a0, $m12, $m15, 2 * (HALVES + \index) + 1
.endm
.macro GELU_CONSTANTS
    HALVES_CONSTANT 0, 0x2891 // sqrt(2 / pi) 0.044715
    HALVES_CONSTANT 1, 0x3a62 // sqrt(2 / pi)
    HALVES_CONSTANT 2, 0x3800 // 1 / 2
.endm
.macro GELU_QUAD x
    { ld64 $a6:7, $m12, $m15, HALVES ; f16v4mul $a4:5, \x, \x }
    { ld64 $a6:7, $m12, $m15, HALVES + 1 ; f16v4mul $a4:5, $a6:7, $a4:5 }
    { ld64 $a6:7, $m12, $m15, HALVES + 2 ; f16v4add $a4:5, $a6:7, $a4:5 }
    f16v4mul $a4:5, \x, $a4:5
    f16v2tanh $a4, $a4
    f16v2tanh $a5, $a5
    f16v4mul \x, $a6:7, \x
    f16v4mul $a4:5, \x, $a4:5
    f16v4add \x, \x, $a4:5
.endm

.macro TAKE_QUAD
    f32v2gina $a0:1, $azeros, 0
    f32v2gina $a2:3, $azeros, 0
.endm

    LAUNCH_ONCE
    ld32 $m8, $m13, $m15, REDUCE_SHARE_ROWS
    ld32 $m7, $m13, $m15, REDUCE_SHARE_PANELS
    shl $m7, $m7, UNIT_SHIFT
    cmpslt $m10, $m8, 6
    mov $m0, $m8
    movnz $m0, $m10, $m7
    SPLIT
    setzi $m6, 0
    brz $m10, dealt
    mov $m6, $m1
    mov $m7, $m2
    setzi $m1, 0
    mov $m2, $m8
dealt:
    brz $m2, done
    brz $m7, done
.if IN_F16 && ACT == ACT_GELU_TANH
    GELU_CONSTANTS
.else
    ACT_CONSTANTS
.endif
    ld32 $m9, $m13, $m15, REDUCE_SHARE_PARTS
    ld32 $m10, $m13, $m15, REDUCE_SHARE_STRIDE
    shr $m10, $m10, 3
    { add $m10, $m10, -1 ; setzi $a6, 8 }
    { nop ; uput $FP_CLR, $a6 }
unit:
    shr $m11, $m6, UNIT_SHIFT
    and $m3, $m6, (1 << UNIT_SHIFT) - 1
    ld32 $m5, $m13, $m15, REDUCE_SHARE_OWN_PANEL
    mul $m5, $m5, $m11
    mul $m11, $m11, $m8
    add $m11, $m11, $m1
    mul $m4, $m11, ROW_BYTES
    shl $m0, $m3, 4
    add $m4, $m4, $m0
    add $m5, $m5, $m0
    mul $m0, $m1, ROW_BYTES
    add $m5, $m5, $m0
    shl $m11, $m11, 5
    mul $m3, $m3, OUT_BYTES
    add $m3, $m3, $m11
    ld32 $m0, $m13, $m15, REDUCE_SHARE_IN
    add $m4, $m4, $m0
    ld32 $m0, $m13, $m15, REDUCE_SHARE_OWN
    add $m5, $m5, $m0
    ld32 $m0, $m13, $m15, REDUCE_SHARE_OUT
    add $m3, $m3, $m0
.if HAS_BIAS
    mul $m11, $m6, OUT_BYTES
    ld32 $m0, $m13, $m15, REDUCE_SHARE_BIAS
    add $m11, $m11, $m0
    st32 $m11, $m12, $m15, 0
.endif
    add $m11, $m2, -1
row:
    ld64 $a0:1, $m15, $m5, 0
    ld64 $a2:3, $m15, $m5, 1
    mov $m0, $m4
.p2align 3
    { rpt $m9, 1 ; fnop }
.if IN_F16
    { ld64step $a0:1, $m15, $m0+=, 1 ; f16v8acc $a0:3 }
.else
    { ld64step $a0:1, $m15, $m0+=, 1 ; f32v4acc $a0:3 }
.endif
    { ld64step $a2:3, $m15, $m0+=, $m10 ; fnop }
.if HAS_BIAS
    ld32 $m0, $m12, $m15, 0
    ld64 $a4:5, $m15, $m0, 0
.if IN_F16
    { ld64 $a6:7, $m15, $m0, 1 ; f16v8acc $a0:3 }
    { add $m4, $m4, ROW_BYTES ; f16v8acc $a4:7 }
.else
    { nop ; f32v4acc $a0:3 }
    { add $m4, $m4, ROW_BYTES ; f16v4acc $a4:5 }
.endif
.elseif IN_F16
    { add $m4, $m4, ROW_BYTES ; f16v8acc $a0:3 }
.else
    { add $m4, $m4, ROW_BYTES ; f32v4acc $a0:3 }
.endif
.if IN_F16 && ACT == ACT_GELU_TANH
    { add $m5, $m5, ROW_BYTES ; f16v2gina $a0, $azero, 0 }
    f16v2gina $a1, $azero, 0
    f16v2gina $a2, $azero, 0
    f16v2gina $a3, $azero, 0
    GELU_QUAD $a0:1
    { st64step $a0:1, $m15, $m3+=, 1 ; fnop }
    GELU_QUAD $a2:3
    st64step $a2:3, $m15, $m3+=, 3
.elseif ACT == ACT_NONE || ACT == ACT_RELU
    { add $m5, $m5, ROW_BYTES ; f16v2gina $a0, $azero, 0 }
    f16v2gina $a1, $azero, 0
.if ACT == ACT_RELU
    f16v4max $a0:1, $a0:1, $azeros
.endif
.if IN_F16
    { st64step $a0:1, $m15, $m3+=, 1 ; f16v2gina $a2, $azero, 0 }
    f16v2gina $a3, $azero, 0
.if ACT == ACT_RELU
    f16v4max $a2:3, $a2:3, $azeros
.endif
    st64step $a2:3, $m15, $m3+=, 3
.else
    st64step $a0:1, $m15, $m3+=, 4
.endif
.else
    { add $m5, $m5, ROW_BYTES ; f32v2gina $a0:1, $azeros, 0 }
    f32v2gina $a2:3, $azeros, 0
.if IN_F16
    FINISH_QUAD $m3, 1
    TAKE_QUAD
    FINISH_QUAD $m3, 3
.else
    FINISH_QUAD $m3, 4
.endif
.endif
    brnzdec $m11, row
    add $m6, $m6, 1
    add $m7, $m7, -1
    brnz $m7, unit
done:
    exitz $m15

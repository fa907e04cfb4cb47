// BINARY: out[R][16 P] = act(a op b). A full b or a scalar meets the elements in order: quads of 4
// are dealt out in runs, one a worker. A row or a column is met quad of columns by quad of
// columns, dealt out by SPLIT_MATRIX. out may equal a, or a full b.
//
// Without division and transcendentals values stay in f16, whose instructions round the exact
// result once: 2 bundles a quad (load and store bound; 3 with a full b, 4 with a column), against
// a roofline of 1 when a, out and b lie in elements of their own. Otherwise f32 inside.
.set IS_MATRIX, FORM == FORM_ROW || FORM == FORM_COLUMN
.set IS_DIVISION, OP == BINARY_DIV || OP == BINARY_RDIV
.set IS_F16, (ACT == ACT_NONE || ACT == ACT_RELU) && !IS_DIVISION
.if IS_MATRIX
.set STEP, 4                   // doublewords from a quad to the next one
.else
.set STEP, 1
.endif

// b for one quad -> $a6:7. $m9 its address.
.macro LOAD_B
.if FORM == FORM_FULL
    ld64step $a6:7, $m15, $m9+=, 1
.endif
.if FORM == FORM_ROW
    ld64 $a6:7, $m9, $m15, 0
.endif
.if FORM == FORM_SCALAR
    ldb16 $a6, $m9, $m15, 0
    ldb16 $a7, $m9, $m15, 0
.endif
.if FORM == FORM_COLUMN
    ldb16 $a6, $m9, $m15, 0
    ldb16step $a7, $m15, $m9+=, 1
.endif
.endm

// f16 quads: a in $a0:1, b in $a6:7 -> $a2:3, beside the main instruction given.
.macro APPLY_F16 main:vararg
.if OP == BINARY_ADD
    { \main ; f16v4add $a2:3, $a0:1, $a6:7 }
.endif
.if OP == BINARY_SUB
    { \main ; f16v4sub $a2:3, $a0:1, $a6:7 }
.endif
.if OP == BINARY_RSUB
    { \main ; f16v4sub $a2:3, $a6:7, $a0:1 }
.endif
.if OP == BINARY_MUL
    { \main ; f16v4mul $a2:3, $a0:1, $a6:7 }
.endif
.if OP == BINARY_MAX
    { \main ; f16v4max $a2:3, $a0:1, $a6:7 }
.endif
.if OP == BINARY_MIN
    { \main ; f16v4min $a2:3, $a0:1, $a6:7 }
.endif
.endm

// f32 pairs: first += or such with $a4:5. \x, \y: the registers of the first.
.macro APPLY_F32 pair, x, y
.if OP == BINARY_ADD
    f32v2add \pair, \pair, $a4:5
.endif
.if OP == BINARY_SUB
    f32v2sub \pair, \pair, $a4:5
.endif
.if OP == BINARY_RSUB
    f32v2sub \pair, $a4:5, \pair
.endif
.if OP == BINARY_MUL
    f32v2mul \pair, \pair, $a4:5
.endif
.if OP == BINARY_MAX
    f32v2max \pair, \pair, $a4:5
.endif
.if OP == BINARY_MIN
    f32v2min \pair, \pair, $a4:5
.endif
.if OP == BINARY_DIV
    f32div \x, \x, $a4
    f32div \y, \y, $a5
.endif
.if OP == BINARY_RDIV
    f32div \x, $a4, \x
    f32div \y, $a5, \y
.endif
.endm

// $m11 quads less one from $m4, against $m9, to $m5.
.macro QUADS loop
.if IS_F16
    ld64step $a0:1, $m15, $m4+=, STEP
    LOAD_B
    APPLY_F16 nop
.if FORM == FORM_FULL
.set BUNDLES, 3
.elseif FORM == FORM_COLUMN
.set BUNDLES, 4
.else
.set BUNDLES, 2
.endif
.p2align 3
    { rpt $m11, BUNDLES - 1 ; fnop }
.if ACT == ACT_RELU
    { ld64step $a0:1, $m15, $m4+=, STEP ; f16v4max $a4:5, $a2:3, $azeros }
.else
    { ld64step $a0:1, $m15, $m4+=, STEP ; fnop }
.endif
.if FORM == FORM_FULL
    { ld64step $a6:7, $m15, $m9+=, 1 ; fnop }
.endif
.if FORM == FORM_COLUMN
    { ldb16 $a6, $m9, $m15, 0 ; fnop }
    { ldb16step $a7, $m15, $m9+=, 1 ; fnop }
.endif
.if ACT == ACT_RELU
    APPLY_F16 st64step $a4:5, $m15, $m5+=, STEP
    f16v4max $a2:3, $a2:3, $azeros
.else
    APPLY_F16 st64step $a2:3, $m15, $m5+=, STEP
.endif
    st64step $a2:3, $m15, $m5+=, STEP
.else
.p2align 3
\loop:
    ld64step $a4:5, $m15, $m4+=, STEP
    LOAD_B
    f16v2tof32 $a0:1, $a4
    f16v2tof32 $a2:3, $a5
    f16v2tof32 $a4:5, $a6
    APPLY_F32 $a0:1, $a0, $a1
    f16v2tof32 $a4:5, $a7
    APPLY_F32 $a2:3, $a2, $a3
    FINISH_QUAD $m5, STEP
    brnzdec $m11, \loop
.endif
.endm

    LAUNCH_ONCE
.if IS_MATRIX
    ld32 $m8, $m13, $m15, BINARY_ROWS
    SPLIT_MATRIX BINARY_PANELS, done
    ACT_CONSTANTS
column:
    QUAD_OFFSET
    ld32 $m4, $m13, $m15, BINARY_A
    ld32 $m5, $m13, $m15, BINARY_OUT
    ld32 $m9, $m13, $m15, BINARY_B
    add $m4, $m4, $m0
    add $m5, $m5, $m0
.if FORM == FORM_ROW
    shl $m3, $m6, 3
.else
    shl $m3, $m1, 1
.endif
    add $m9, $m9, $m3
    add $m11, $m2, -1
    QUADS row
    add $m6, $m6, 1
    add $m7, $m7, -1
    brnz $m7, column
.else
    ld32 $m0, $m13, $m15, BINARY_ROWS
    ld32 $m1, $m13, $m15, BINARY_PANELS
    mul $m0, $m0, $m1
    shl $m0, $m0, 2
    SPLIT
    brz $m2, done
    ACT_CONSTANTS
    ld32 $m4, $m13, $m15, BINARY_A
    ld32 $m9, $m13, $m15, BINARY_B
    ld32 $m5, $m13, $m15, BINARY_OUT
    shl $m1, $m1, 3
    add $m4, $m4, $m1
    add $m5, $m5, $m1
.if FORM == FORM_FULL
    add $m9, $m9, $m1
.endif
    add $m11, $m2, -1
    QUADS quad
.endif
done:
    exitz $m15

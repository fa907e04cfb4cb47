// RELAYOUT: transposed panels, and weights of a product whose right operand was computed.
//
// Transposing forms: an item is 4 rows x 16 columns of x, four blocks of 4 x 4 that go through the
// accumulator permuter: two rows in, two columns out an instruction, beside one load and one
// store: 4 bundles a block, which is the roofline of 8 bytes a cycle each way. Some 35 groups of
// addressing, filling and draining an item come on top. Copying forms: an item is 8 rows of a
// panel, 32 bundles of a load and a store, and some 25 groups.
// Items at the edges (fewer rows or columns, all padding of out) or with long rows go slower.
//
// Worker area: 0..23 lane masks; 24 stride register; 32 bytes of out from one group of 16 rows of
// x to the next, 36 from one panel of columns to the next, 40 from the first 8 columns of a panel
// to the others; 48.. registers of the slow
// way, which for transposing keeps its mask of rows in 0..7.
.set STRIDES, 24 / 4
.set OUT_GROUP, 32 / 4
.set OUT_PANEL, 36 / 4
.set OUT_HALF, 40 / 4
.set SAVED, 48 / 4
.set IS_COPY, OP == RELAYOUT_COPY_W8 || OP == RELAYOUT_COPY_W16

// $m6 panel and $m1 item in it, of $m7; $m2 panels. Every sixth item is the worker's, so that those
// at the edges are spread. NEXT_ITEM comes with $m1 advanced by 6, or by the worker's number.
.macro NEXT_ITEM item
    cmpult $m3, $m1, $m7
    brnz $m3, \item
    sub $m1, $m1, $m7
    add $m6, $m6, 1
    cmpult $m3, $m6, $m2
    brnz $m3, wrap
    exitz $m15
.endm

    LAUNCH_ONCE
    ld32 $m7, $m13, $m15, RELAYOUT_ROWS
    ld32 $m6, $m13, $m15, RELAYOUT_COLUMNS
    add $m7, $m7, 15
    add $m8, $m6, 15
    shr $m7, $m7, 4
    shr $m8, $m8, 4

.if IS_COPY
    shl $m9, $m8, 8                // bytes of a row of blocks
    st32 $m9, $m12, $m15, OUT_GROUP
    shl $m7, $m7, 1
    mov $m2, $m8
    and $m0, $m6, 3
    brz $m0, masks_done
    LANE_MASKS
masks_done:
    get $m1, $WSR
    and $m1, $m1, 7
    setzi $m6, 0
    ld32 $m8, $m13, $m15, RELAYOUT_ROW_STRIDE
    ld32 $m10, $m12, $m15, OUT_GROUP
    bri wrap
item:
    ld32 $m0, $m13, $m15, RELAYOUT_X
    ld32 $m3, $m13, $m15, RELAYOUT_PANEL_STRIDE
    shl $m4, $m1, 3
    mul $m5, $m4, $m8
    mul $m3, $m3, $m6
    add $m0, $m0, $m5
    add $m0, $m0, $m3              // x
    ld32 $m3, $m13, $m15, RELAYOUT_OUT
    ld32 $m9, $m13, $m15, RELAYOUT_ROWS
.if OP == RELAYOUT_COPY_W8
    mul $m5, $m1, $m10
    add $m3, $m3, $m5
    shl $m5, $m6, 8
.else
    and $m5, $m1, 1
    sub $m11, $m1, $m5
    mul $m11, $m11, $m10
    shl $m5, $m5, 8
    add $m3, $m3, $m11
    add $m3, $m3, $m5
    shl $m5, $m6, 9
.endif
    add $m3, $m3, $m5              // out
    sub $m9, $m9, $m4              // rows left
    ld32 $m5, $m13, $m15, RELAYOUT_COLUMNS
    shl $m4, $m6, 4
    sub $m11, $m5, $m4             // columns left
    cmpslt $m4, $m9, 8
    brnz $m4, slow
    cmpslt $m4, $m11, 16
    brnz $m4, slow
    setzi $m4, 4104
    cmpult $m4, $m4, $m8
    brnz $m4, slow
    ld64step $a0:1, $m15, $m0+=, 1
    tapack $m4:5, $m0, $m15, $m3
    shr $m9, $m8, 3
    add $m9, $m9, -3
    setzi $m0, 1023
    and $m9, $m9, $m0
    setzi $m0, 7
.p2align 3
    { rpt $m0, 3 ; fnop }
    { ldst64pace $a0:1, $a0:1, $m4:5+=, $m9, 0 ; fnop }
    { ldst64pace $a0:1, $a0:1, $m4:5+=, $m9, 0 ; fnop }
    { ldst64pace $a0:1, $a0:1, $m4:5+=, $m9, 1 ; fnop }
    { ldst64pace $a0:1, $a0:1, $m4:5+=, $m9, 0 ; fnop }
    ldst64pace $a0:1, $a0:1, $m4:5+=, $m9, 0
    ldst64pace $a0:1, $a0:1, $m4:5+=, $m9, 0
    ldst64pace $a0:1, $a0:1, $m4:5+=, $m9, 0
    st64pace $a0:1, $m4:5+=, $m9, 0
next:
    add $m1, $m1, 6
wrap:
    NEXT_ITEM item
// $m0 x, $m3 out, $m9 rows left, $m11 columns left.
slow:
    min $m11, $m11, 16
    st32 $m2, $m12, $m15, SAVED
    setzi $m2, 7
slow_row:
    setzi $m4, 4
    add $m9, $m9, -1
    brneg $m9, slow_zeros
    mov $m5, $m0
    shr $m4, $m11, 2
.p2align 3
    { rpt $m4, 1 ; fnop }
    { ld64step $a0:1, $m15, $m5+=, 1 ; fnop }
    { st64step $a0:1, $m15, $m3+=, 1 ; fnop }
    and $m4, $m11, 3
    brz $m4, slow_whole
    ld64 $a0:1, $m15, $m5, 0
    ld64 $a2:3, $m12, $m15, 0
    and64 $a0:1, $a0:1, $a2:3
    st64step $a0:1, $m15, $m3+=, 1
slow_whole:
    sub $m4, 16, $m11
    shr $m4, $m4, 2
slow_zeros:
.p2align 3
    { rpt $m4, 0 ; fnop }
    { st64step $azeros, $m15, $m3+=, 1 ; fnop }
    add $m0, $m0, $m8
    brnzdec $m2, slow_row
    ld32 $m2, $m12, $m15, SAVED
    bri next
.else
.if OP == RELAYOUT_TRANSPOSE
    shl $m3, $m6, 5
    setzi $m4, 512
    setzi $m5, 256
.else
    shl $m4, $m7, 9
.if OP == RELAYOUT_TRANSPOSE_W8
    setzi $m3, 256
    shl $m5, $m7, 8
.else
    setzi $m3, 512
    setzi $m5, 256
.endif
.endif
    st32 $m3, $m12, $m15, OUT_GROUP
    st32 $m4, $m12, $m15, OUT_PANEL
    st32 $m5, $m12, $m15, OUT_HALF
    shl $m7, $m7, 2
    mov $m2, $m8
    get $m1, $WSR
    and $m1, $m1, 7
    setzi $m6, 0
    ld32 $m3, $m13, $m15, RELAYOUT_ROW_STRIDE
    shr $m3, $m3, 3
    mul $m4, $m3, 3
    sub $m4, 1, $m4
    setzi $m5, 1023
    and $m4, $m4, $m5
    shl $m4, $m4, 10
    or $m4, $m4, $m3
    or $m4, $m4, 4 << 20
    st32 $m4, $m12, $m15, STRIDES
    bri wrap
item:
    ld32 $m8, $m13, $m15, RELAYOUT_ROW_STRIDE
    ld32 $m3, $m13, $m15, RELAYOUT_PANEL_STRIDE
    ld32 $m0, $m13, $m15, RELAYOUT_X
    mul $m3, $m3, $m6
    add $m0, $m0, $m3              // row 0 of the panel
    ld32 $m3, $m13, $m15, RELAYOUT_OUT
    ld32 $m4, $m12, $m15, OUT_GROUP
    shr $m5, $m1, 2
    mul $m4, $m4, $m5
    add $m3, $m3, $m4
    ld32 $m4, $m12, $m15, OUT_PANEL
    and $m5, $m1, 3
    shl $m5, $m5, 3
    mul $m4, $m4, $m6
    add $m3, $m3, $m5
    add $m3, $m3, $m4              // out
    ld32 $m9, $m13, $m15, RELAYOUT_ROWS
    shl $m4, $m1, 2
    sub $m9, $m9, $m4              // rows left
    ld32 $m10, $m13, $m15, RELAYOUT_COLUMNS
    shl $m5, $m6, 4
    sub $m10, $m10, $m5            // columns left
    mul $m4, $m4, $m8
    cmpslt $m5, $m9, 4
    brnz $m5, slow
    cmpslt $m5, $m10, 16
    brnz $m5, slow
    setzi $m5, 1360
    cmpult $m5, $m5, $m8
    brnz $m5, slow
    add $m0, $m0, $m4
    shr $m8, $m8, 3
    mul $m5, $m8, 3
    ld32 $m4, $m12, $m15, STRIDES
    sub $m5, 1, $m5
    ld64step $a0:1, $m15, $m0+=, $m8
    ld64step $a2:3, $m15, $m0+=, $m8
    ld64step $a4:5, $m15, $m0+=, $m8
// Bundle k = 4 block + phase: reads row k + 3 (selector 1, after a block's last row 2), writes
// column k - 3. The phases' registers: rows 0, 1, 2, 3 in $a0, $a2, $a4, $a0.
.set DOWN, 3 << 2 | 1
.set BACK, 3 << 2 | 2
    { ld64step $a0:1, $m15, $m0+=, $m5 ; f16v4istacc $azeros, $a0:1, $a2:3, 0 }
    { ld64step $a0:1, $m15, $m0+=, $m8 ; f16v4istacc $azeros, $a4:5, $a0:1, 1 }
    { ld64step $a2:3, $m15, $m0+=, $m8 ; f16v4stacc $a6:7, 0 }
    tapack $m8:9, $m0, $m15, $m3
    ld32 $m5, $m12, $m15, OUT_HALF
    add $m0, $m0, 16
    add $m3, $m3, $m5
    tapack $m10:11, $m0, $m15, $m3
    { ldst64pace $a4:5, $a6:7, $m8:9+=, $m4, DOWN ; f16v4stacc $a6:7, 1 }
    { ldst64pace $a0:1, $a6:7, $m8:9+=, $m4, BACK ; f16v4istacc $a6:7, $a0:1, $a2:3, 0 }
    { ldst64pace $a0:1, $a6:7, $m8:9+=, $m4, DOWN ; f16v4istacc $a6:7, $a4:5, $a0:1, 1 }
    { ldst64pace $a2:3, $a6:7, $m8:9+=, $m4, DOWN ; f16v4stacc $a6:7, 0 }
    { ldst64pace $a4:5, $a6:7, $m8:9+=, $m4, DOWN ; f16v4stacc $a6:7, 1 }
    { ldst64pace $a0:1, $a6:7, $m8:9+=, $m4, BACK ; f16v4istacc $a6:7, $a0:1, $a2:3, 0 }
    { ldst64pace $a0:1, $a6:7, $m8:9+=, $m4, DOWN ; f16v4istacc $a6:7, $a4:5, $a0:1, 1 }
    { ldst64pace $a2:3, $a6:7, $m8:9+=, $m4, DOWN ; f16v4stacc $a6:7, 0 }
    // The other 8 columns: row 2 of the last block is next.
    { ldst64pace $a4:5, $a6:7, $m10:11+=, $m4, DOWN ; f16v4stacc $a6:7, 1 }
    { ldst64pace $a0:1, $a6:7, $m10:11+=, $m4, BACK ; f16v4istacc $a6:7, $a0:1, $a2:3, 0 }
    { st64pace $a6:7, $m10:11+=, $m4, 3 ; f16v4istacc $a6:7, $a4:5, $a0:1, 1 }
    { st64pace $a6:7, $m10:11+=, $m4, 3 ; f16v4stacc $a6:7, 0 }
    { st64pace $a6:7, $m10:11+=, $m4, 3 ; f16v4stacc $a6:7, 1 }
    { st64pace $a6:7, $m10:11+=, $m4, 3 ; f16v4istacc $a6:7, $azeros, $azeros, 0 }
    { st64pace $a6:7, $m10:11+=, $m4, 3 ; f16v4istacc $a6:7, $azeros, $azeros, 1 }
    st64pace $a6:7, $m10:11+=, $m4, 0
next:
    add $m1, $m1, 6
wrap:
    NEXT_ITEM item
// The column in $a6:7 to out, or padding, or nothing when $m10 columns are used up.
.macro STORE_COLUMN other, stored
    { add $m10, $m10, -1 ; and64 $a6:7, $a6:7, $a4:5 }
    brneg $m10, \other
    st64step $a6:7, $m15, $m3+=, 4
\stored:
.endm
.macro PAD_COLUMN other, stored
\other:
.if OP != RELAYOUT_TRANSPOSE
    st64step $azeros, $m15, $m3+=, 4
.endif
    bri \stored
.endm
// $m0 row 0 of the panel, $m4 bytes to the item's first row, $m8 row stride, $m9 rows left, $m10
// columns left. Rows that are not there are read as the last one there and masked; when none is
// there, row 0 is read.
slow:
    min $m10, $m10, 16
    st32 $m1, $m12, $m15, SAVED
    st32 $m2, $m12, $m15, SAVED + 1
    st32 $m6, $m12, $m15, SAVED + 2
    // Lanes of rows that are there: rows left > i, as 16 bits each.
    sub $m1, 0, $m9
    shrs $m1, $m1, 31
    sub $m2, 1, $m9
    shrs $m2, $m2, 31
    sort4x16lo $m1, $m1, $m2
    st32 $m1, $m12, $m15, 0
    sub $m1, 2, $m9
    shrs $m1, $m1, 31
    sub $m2, 3, $m9
    shrs $m2, $m2, 31
    sort4x16lo $m1, $m1, $m2
    st32 $m1, $m12, $m15, 1
    min $m9, $m9, 4
    max $m1, $m9, 1
    add $m1, $m1, -1               // last row there
    cmpslt $m2, $m9, 1
    brz $m2, slow_some
    setzi $m4, 0
slow_some:
    add $m4, $m4, $m0              // row 0
    min $m2, $m1, 1
    mul $m2, $m2, $m8
    add $m5, $m4, $m2              // row 1
    min $m2, $m1, 2
    mul $m2, $m2, $m8
    add $m0, $m4, $m2              // row 2
    mul $m1, $m1, $m8
    add $m8, $m4, $m1              // row 3
    setzi $m9, 3
    ld32 $m6, $m12, $m15, OUT_HALF
    add $m6, $m6, -256
slow_quad:
    brneg $m10, slow_no_quad
    brz $m10, slow_no_quad
    ld64step $a0:1, $m15, $m4+=, 1
    ld64step $a2:3, $m15, $m5+=, 1
    { ld64step $a4:5, $m15, $m0+=, 1 ; f16v4istacc $azeros, $a0:1, $a2:3, 0 }
    ld64step $a0:1, $m15, $m8+=, 1
    { ld64 $a4:5, $m12, $m15, 0 ; f16v4istacc $azeros, $a4:5, $a0:1, 1 }
    f16v4stacc $a6:7, 0
    STORE_COLUMN other_0, stored_0
    f16v4stacc $a6:7, 1
    STORE_COLUMN other_1, stored_1
    f16v4istacc $a6:7, $azeros, $azeros, 0
    STORE_COLUMN other_2, stored_2
    f16v4istacc $a6:7, $azeros, $azeros, 1
    STORE_COLUMN other_3, stored_3
slow_next:
    cmpeq $m1, $m9, 2
    brz $m1, slow_same_half
    add $m3, $m3, $m6
slow_same_half:
    brnzdec $m9, slow_quad
slow_done:
    ld32 $m1, $m12, $m15, SAVED
    ld32 $m2, $m12, $m15, SAVED + 1
    ld32 $m6, $m12, $m15, SAVED + 2
    bri next
slow_no_quad:
.if OP == RELAYOUT_TRANSPOSE
    bri slow_done
.else
    st64step $azeros, $m15, $m3+=, 4
    st64step $azeros, $m15, $m3+=, 4
    st64step $azeros, $m15, $m3+=, 4
    st64step $azeros, $m15, $m3+=, 4
    bri slow_next
.endif
    PAD_COLUMN other_0, stored_0
    PAD_COLUMN other_1, stored_1
    PAD_COLUMN other_2, stored_2
    PAD_COLUMN other_3, stored_3
.endif

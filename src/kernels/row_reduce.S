// ROW_REDUCE: sum, mean or largest of each row's logical columns, one value a row. Workers take
// runs of pairs of rows, since words are the least that can be stored: the last of an odd number
// of rows is stored twice. One group a quad of columns: load bound at 8 bytes a cycle; a roofline
// of 16 needs 128-bit loads, which only region 1 has.
//
// Worker area: 0..23 lane masks (LANE_MASKS), 24..31 -inf in the padding lanes of the partial quad.
.set FILL, 3

    LAUNCH_ONCE
    ld32 $m7, $m13, $m15, ROW_REDUCE_ROWS
    add $m0, $m7, 1
    shr $m0, $m0, 1
    SPLIT
    brz $m2, done
    add $m2, $m2, -1
    ld32 $m10, $m13, $m15, ROW_REDUCE_COLUMNS
    setzi $a0, 8
    { and $m0, $m10, 3 ; uput $FP_CLR, $a0 }
    brz $m0, no_masks
    LANE_MASKS
.if OP == ROW_REDUCE_MAX
    setzi $m8, 0xfc00
    or $m8, $m8, 0xfc000000
    andc $m5, $m8, $m4
    st32 $m5, $m12, $m15, 2 * FILL + 1
    ld32 $m4, $m12, $m15, 0
    andc $m5, $m8, $m4
    st32 $m5, $m12, $m15, 2 * FILL
.endif
no_masks:
    shr $m8, $m10, 4
    and $m10, $m10, 15
    shl $m9, $m7, 2
    add $m9, $m9, -3
    ld32 $m6, $m13, $m15, ROW_REDUCE_X
    ld32 $m5, $m13, $m15, ROW_REDUCE_OUT
    shl $m3, $m1, 6
    add $m6, $m6, $m3
.if OUT_F32
    shl $m3, $m1, 3
.else
    shl $m3, $m1, 2
.endif
    add $m5, $m5, $m3
    shl $m1, $m1, 1
pair:
    mov $m3, $m6
    call $m11, row_value
    add $m1, $m1, 1
    or64 $a6:7, $a0:1, $azeros
    cmpult $m3, $m1, $m7
    brz $m3, paired
    add $m3, $m6, 32
    call $m11, row_value
paired:
.if OP == ROW_REDUCE_MEAN
    ld32 $a2, $m13, $m15, ROW_REDUCE_COLUMNS
    f32fromui32 $a2, $a2
    f32div $a6, $a6, $a2
    f32div $a7, $a0, $a2
.else
    f32add $a7, $a0, $azero
.endif
.if OUT_F32
    st64step $a6:7, $m15, $m5+=, 1
.else
    f32v2tof16 $a6, $a6:7
    st32step $a6, $m15, $m5+=, 1
.endif
    add $m1, $m1, 1
    add $m6, $m6, 64
    brnzdec $m2, pair
done:
    exitz $m15

// The row at $m3 -> $a0, f32. Clobbers $m0, $m3, $a1..$a5.
.p2align 3
row_value:
.if OP == ROW_REDUCE_MAX
    setzi $a0, 0xfc00
    or $a0, $a0, 0xfc000000
    sort4x32lo $a0:1, $a0:1, $a0:1
    or64 $a2:3, $a0:1, $azeros
.p2align 3
    { rpt $m8, 3 ; fnop }
    { ld64step $a2:3, $m15, $m3+=, 1 ; f16v4max $a0:1, $a0:1, $a2:3 }
    { ld64step $a2:3, $m15, $m3+=, 1 ; f16v4max $a0:1, $a0:1, $a2:3 }
    { ld64step $a2:3, $m15, $m3+=, 1 ; f16v4max $a0:1, $a0:1, $a2:3 }
    { ld64step $a2:3, $m15, $m3+=, $m9 ; f16v4max $a0:1, $a0:1, $a2:3 }
    shr $m0, $m10, 2
.p2align 3
    { rpt $m0, 0 ; fnop }
    { ld64step $a2:3, $m15, $m3+=, 1 ; f16v4max $a0:1, $a0:1, $a2:3 }
    { and $m0, $m10, 3 ; f16v4max $a0:1, $a0:1, $a2:3 }
    brz $m0, max_done
    ld64 $a2:3, $m15, $m3, 0
    ld64 $a4:5, $m12, $m15, 0
    { ld64 $a4:5, $m12, $m15, FILL ; and64 $a2:3, $a2:3, $a4:5 }
    or64 $a2:3, $a2:3, $a4:5
    f16v4max $a0:1, $a0:1, $a2:3
max_done:
    f16v4maxc $a0, $a0:1
    f16v2maxc $a0, $a0
    { br $m11 ; f16tof32 $a0, $a0 }
.else
    SUM_PANELS
    SUM_TAIL
    SUM_TAKE
    br $m11
.endif

// ROW_REDUCE_F32: sum, mean or largest of each row's logical columns, into a row of one panel whose
// other columns are 0. Rows are dealt out in runs, one a worker; two running values a row.
.macro TAKE
.if OP == ROW_REDUCE_MAX
    f32v2max $a4:5, $a4:5, $a0:1
.else
    f32v2add $a4:5, $a4:5, $a0:1
.endif
.endm

    LAUNCH_ONCE
    ld32 $m0, $m13, $m15, ROW_REDUCE_ROWS
    shl $m8, $m0, 6
    add $m8, $m8, -64              // from the end of a row to the next panel's
    SPLIT
    brz $m2, done
    ld32 $m6, $m13, $m15, ROW_REDUCE_X
    ld32 $m7, $m13, $m15, ROW_REDUCE_OUT
    shl $m1, $m1, 6
    add $m6, $m6, $m1
    add $m7, $m7, $m1
    add $m2, $m2, -1
    ld32 $m9, $m13, $m15, ROW_REDUCE_COLUMNS
    shr $m10, $m9, 4
    and $m9, $m9, 15
row:
    mov $m3, $m6
.if OP == ROW_REDUCE_MAX
    or $a4, $azero, 0xff800000
    or $a5, $azero, 0xff800000
.else
    or64 $a4:5, $azeros, $azeros
.endif
    mov $m4, $m10
    brz $m4, tail
    add $m4, $m4, -1
panel:
    setzi $m5, 7
pair:
    ld64step $a0:1, $m15, $m3+=, 1
    TAKE
    brnzdec $m5, pair
    add $m3, $m3, $m8
    brnzdec $m4, panel
tail:
    shr $m5, $m9, 1
    brz $m5, odd
    add $m5, $m5, -1
tail_pair:
    ld64step $a0:1, $m15, $m3+=, 1
    TAKE
    brnzdec $m5, tail_pair
odd:
    and $m5, $m9, 1
    brz $m5, both
    ld32 $a0, $m3, $m15, 0
.if OP == ROW_REDUCE_MAX
    f32max $a4, $a4, $a0
.else
    f32add $a4, $a4, $a0
.endif
both:
.if OP == ROW_REDUCE_MAX
    f32max $a0, $a4, $a5
.else
    f32add $a0, $a4, $a5
.endif
.if OP == ROW_REDUCE_MEAN
    ld32 $a2, $m13, $m15, ROW_REDUCE_COLUMNS
    f32fromui32 $a2, $a2
    f32div $a0, $a0, $a2
.endif
    or $a1, $azero, $azero
    st64step $a0:1, $m15, $m7+=, 1
    setzi $m5, 6
zeros:
    st64step $azeros, $m15, $m7+=, 1
    brnzdec $m5, zeros
    add $m6, $m6, 64
    brnzdec $m2, row
done:
    exitz $m15

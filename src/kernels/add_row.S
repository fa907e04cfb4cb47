// ADD_ROW: out[R][16 P] = act(x[R][16 P] + row[16 P]). A worker takes runs of rows of all quads
// of columns, or, when there are few rows, all rows of a run of quads. out may equal x.
    LAUNCH_ONCE
    ld32 $m8, $m13, $m15, ADD_ROW_ROWS
    SPLIT_MATRIX ADD_ROW_PANELS, done
.if ACT != ACT_NONE && ACT != ACT_RELU
    ACT_CONSTANTS
.endif
quad:
    QUAD_OFFSET
    ld32 $m4, $m13, $m15, ADD_ROW_X
    ld32 $m5, $m13, $m15, ADD_ROW_OUT
    ld32 $m9, $m13, $m15, ADD_ROW_ROW
    add $m4, $m4, $m0
    add $m5, $m5, $m0
    shl $m3, $m6, 3
    ld64 $a6:7, $m9, $m3, 0
    add $m11, $m2, -1
.if ACT == ACT_NONE || ACT == ACT_RELU
    ld64step $a0:1, $m15, $m4+=, 4
    f16v4add $a2:3, $a0:1, $a6:7
.p2align 3
.if ACT == ACT_RELU
    { rpt $m11, 2 ; fnop }
    { nop ; f16v4max $a4:5, $a2:3, $azeros }
    { ld64step $a0:1, $m15, $m4+=, 4 ; fnop }
    { st64step $a4:5, $m15, $m5+=, 4 ; f16v4add $a2:3, $a0:1, $a6:7 }
    f16v4max $a2:3, $a2:3, $azeros
.else
    { rpt $m11, 1 ; fnop }
    { ld64step $a0:1, $m15, $m4+=, 4 ; fnop }
    { st64step $a2:3, $m15, $m5+=, 4 ; f16v4add $a2:3, $a0:1, $a6:7 }
.endif
    st64step $a2:3, $m15, $m5+=, 4
.else
.p2align 3
row:
    ld64step $a4:5, $m15, $m4+=, 4
    { ld64 $a6:7, $m9, $m3, 0 ; f16v2tof32 $a0:1, $a4 }
    SUM_QUADS
    FINISH_QUAD $m5, 4
    brnzdec $m11, row
.endif
    add $m6, $m6, 1
    add $m7, $m7, -1
    brnz $m7, quad
done:
    exitz $m15

// ATTENTION_MERGE: rows of the result from the parts that ATTENTION_BLOCK made of it. Part i with
// largest score m_i and sum l_i has the factor exp(scale (m_i - M)) / sum of exp(scale (m_j - M))
// l_j, M the largest m. Factors are formed in f32 and rounded to f16; f16v4mix adds two parts in
// f32 and rounds once, further pairs are added one by one.
//
// A worker takes a run of rows: 3 bundles a quad for the first pair of parts, 4 for each other one.
//
// The first part lies in panels MERGE_OWN_STRIDE bytes apart, its largest scores at MERGE_STATS and
// its sums MERGE_STATS_STRIDE behind them, all at the first of these rows. Each other part is
// [PANELS][ROWS][16] f16, f32 [ROWS] largest scores, [ROWS] sums, MERGE_STRIDE bytes apart.
//
// Worker area: 0 factors, f32 [16]; 64 pairs of them as f16, [8].
.set FACTORS, 0
.set PAIRS, 64

// A quad of the row, after the one before it: takes two parts' values, finishes the other. Each
// pointer then goes to its next quad.
.macro MERGE_QUAD accumulates, x_step, y_step, out_step
    { ld64step $a0:1, $m15, $m3+=, \x_step ; f16v4mix $a4:5, $azeros, $azeros }
.if \accumulates
    { ld64step $a2:3, $m15, $m4+=, \y_step ; f16v4add $a4:5, $a4:5, $a6:7 }
.else
    { ld64step $a2:3, $m15, $m4+=, \y_step ; fnop }
.endif
    { st64step $a4:5, $m15, $m5+=, \out_step ; f16v4mix $azeros, $a0:1, $a2:3 }
.if \accumulates
    { ld64 $a6:7, $m15, $m5, 0 ; fnop }
.endif
.endm

// The row at $m3 and $m4, times the pair of factors at $m11, to or onto $m5. Steps from a panel's
// last quad to the next panel: $m7 of $m3, $m8 of $m4, $m9 of $m5.
.macro MERGE_ROW accumulates
    ld32step $a0, $m15, $m11+=, 1
    { ld32 $m0, $m13, $m15, MERGE_PANELS ; uput $TAS, $a0 }
    ld64step $a0:1, $m15, $m3+=, 1
    { ld64step $a2:3, $m15, $m4+=, 1 ; fnop }
.if \accumulates
    ld64 $a6:7, $m15, $m5, 0
.endif
    { add $m0, $m0, -1 ; f16v4mix $azeros, $a0:1, $a2:3 }
.p2align 3
.if \accumulates
    { rpt $m0, 15 ; fnop }
.else
    { rpt $m0, 11 ; fnop }
.endif
    MERGE_QUAD \accumulates, 1, 1, 1
    MERGE_QUAD \accumulates, 1, 1, 1
    MERGE_QUAD \accumulates, $m7, $m8, 1
    MERGE_QUAD \accumulates, 1, 1, $m9
    MERGE_QUAD \accumulates, 1, 1, 1
    MERGE_QUAD \accumulates, 1, 1, 1
    MERGE_QUAD \accumulates, 1, 1, 1
    f16v4mix $a4:5, $azeros, $azeros
.if \accumulates
    f16v4add $a4:5, $a4:5, $a6:7
.endif
    st64 $a4:5, $m15, $m5, 0
.endm

    LAUNCH_ONCE
    ld32 $m0, $m13, $m15, MERGE_ROWS
    SPLIT
    brz $m2, merged
    setzi $a0, 8
    { add $m2, $m2, -1 ; uput $FP_CLR, $a0 }
row:
    // Factors.
    ld32 $m5, $m13, $m15, MERGE_STATS
    ld32 $m8, $m13, $m15, MERGE_ROWS
    ld32 $m7, $m13, $m15, MERGE_PANELS
    ld32 $m6, $m13, $m15, MERGE_IN
    ld32 $m10, $m13, $m15, MERGE_STRIDE
    ld32 $m9, $m13, $m15, MERGE_PARTS
    shl $m4, $m1, 2
    add $m5, $m5, $m4              // own
    mul $m7, $m7, $m8
    shl $m7, $m7, 5
    add $m6, $m6, $m7
    add $m6, $m6, $m4              // the next part's
    shr $m10, $m10, 2
    add $m9, $m9, -1               // other parts
    ld32 $a6, $m15, $m5, 0
    { mov $m3, $m6 ; or $a0, $a6, $azero }
.p2align 3
    { rpt $m9, 0 ; fnop }
    { ld32step $a0, $m15, $m3+=, $m10 ; f32max $a6, $a6, $a0 }
    { ld32 $a0, $m15, $m5, 0 ; f32max $a6, $a6, $a0 }
    { ld32 $a5, $m13, $m15, MERGE_SCALE ; f32sub $a0, $a0, $a6 }
    { ld32 $m4, $m13, $m15, MERGE_STATS_STRIDE ; f32mul $a0, $a0, $a5 }
    { ld32 $a1, $m4, $m5, 0 ; f32exp $a0, $a0 }
    { st32 $a0, $m12, $m15, FACTORS / 4 ; f32mul $a4, $a0, $a1 }
    shl $m8, $m8, 2
    add $m8, $m8, $m6              // its sum
    add $m3, $m12, FACTORS + 4
    brz $m9, factors_known
    add $m0, $m9, -1
other:
    ld32step $a0, $m15, $m6+=, $m10
    f32sub $a0, $a0, $a6
    f32mul $a0, $a0, $a5
    { ld32step $a1, $m15, $m8+=, $m10 ; f32exp $a0, $a0 }
    { st32step $a0, $m15, $m3+=, 1 ; f32mul $a0, $a0, $a1 }
    f32add $a4, $a4, $a0
    brnzdec $m0, other
factors_known:
    { st32 $azero, $m15, $m3, 0 ; f32oox $a4, $a4 } // partner of the last of an odd number
    shr $m0, $m9, 1
    add $m3, $m12, FACTORS
    add $m11, $m12, PAIRS
pair:
    ld64step $a0:1, $m15, $m3+=, 1
    f32v2mul $a0:1, $a4:B, $a0:1
    f32v2tof16 $a0, $a0:1
    st32step $a0, $m15, $m11+=, 1
    brnzdec $m0, pair
    // The first pair of parts.
    add $m11, $m12, PAIRS
    ld32 $m3, $m13, $m15, MERGE_OWN
    ld32 $m5, $m13, $m15, MERGE_OUT
    ld32 $m6, $m13, $m15, MERGE_IN
    ld32 $m7, $m13, $m15, MERGE_OWN_STRIDE
    ld32 $m8, $m13, $m15, MERGE_ROWS
    shl $m4, $m1, 5
    add $m3, $m3, $m4
    add $m5, $m5, $m4
    add $m6, $m6, $m4
    shr $m7, $m7, 3
    add $m7, $m7, -3
    shl $m8, $m8, 2
    add $m8, $m8, -3
    mov $m10, $m9
    mov $m9, $m8
    mov $m4, $m6
    brnz $m10, first_pair
    mov $m4, $m3                   // one part: with itself and factor 0
    mov $m8, $m7
first_pair:
    MERGE_ROW 0
    mov $m7, $m9
    mov $m8, $m9
next_pair:
    ld32 $m0, $m13, $m15, MERGE_STRIDE
    add $m10, $m10, -1
    cmpslt $m3, $m10, 1
    brnz $m3, row_done
    add $m3, $m6, $m0
    add $m10, $m10, -1
    mov $m4, $m3
    mov $m6, $m3
    brz $m10, last_alone
    add $m4, $m3, $m0
    mov $m6, $m4
last_alone:
    ld32 $m5, $m13, $m15, MERGE_OUT
    shl $m0, $m1, 5
    add $m5, $m5, $m0
    MERGE_ROW 1
    bri next_pair
row_done:
    add $m1, $m1, 1
    brnzdec $m2, row
merged:
    exitz $m15

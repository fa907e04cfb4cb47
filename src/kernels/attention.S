// ATTENTION: out[Rq][E] = softmax(scale Q K') V for one head's rows and E columns of V, by inner
// products, rows of q in pairs (of an odd number the last with itself). Three launches a pair:
//   scores   a worker takes a run of keys: f32 scores of both rows in scratch, [key][2], largest
//            of each in its area
//   weights  the same run: exp(score - largest) in place, their sums in the areas
//   values   a worker takes a run of pairs of columns: f32v2aop forms 2 rows x 2 columns a key, and
//            the sums scale the result, which is rounded once
// Groups: 6 a key, panel and row (4 of f16v4cmac and 2 for the panels' distance), 11 a key for the
// exponentials, 2 a key and pair of columns. Roofline: 8 products a row in 4 cycles of f16v4cmac,
// 4 a cycle of f32v2aop; from some 12 rows RELAYOUT, GEMM_AMP and SOFTMAX are faster.
//
// One row with few keys: two launches. Scores as above; then every worker forms all weights itself,
// in its area as pairs of equal words, and takes its run of pairs of columns by f32v2mac.
//
// scratch: 0 descriptor of a launch (4 words: descriptor, rows of q, of out, bytes from the first
// row to the second), 16.. weights, 8 bytes a key.
// Worker area: 0..7 largest of both rows, 8..15 sums. One row: weights, 8 bytes a key.
.set FEW_KEYS, 16              // as many as fit
.set LARGEST, 0
.set SUMS, 1
.set AREA_PAIRS, 32            // doublewords from one worker's area to the next
.set L_DESCRIPTOR, 0
.set L_Q, 1
.set L_OUT, 2
.set L_SECOND, 3

.supervisor
.p2align 3
ENTRY
    ld32 $m9, $m2, $m15, ATTENTION_SCRATCH
    ld32 $m4, $m2, $m15, ATTENTION_Q
    ld32 $m5, $m2, $m15, ATTENTION_OUT
    ld32 $m6, $m2, $m15, ATTENTION_ROWS
    st32 $m2, $m9, $m15, L_DESCRIPTOR
    ld32 $m7, $m2, $m15, ATTENTION_KEYS
    cmpeq $m8, $m6, 1
    cmpult $m7, $m7, FEW_KEYS + 1
    and $m8, $m8, $m7
    brz $m8, rows
    setzi $m3, one_scores
    runall $m3, $m2, 0
    setzi $m3, one_values
    sync 2
    runall $m3, $m2, 0
    sync 2
    br $m10
rows:
    setzi $m7, 32
    cmpeq $m8, $m6, 1
    brz $m8, two_rows
    setzi $m7, 0
two_rows:
    st32 $m4, $m9, $m15, L_Q
    st32 $m5, $m9, $m15, L_OUT
    st32 $m7, $m9, $m15, L_SECOND
    setzi $m3, scores
    runall $m3, $m9, 0
    setzi $m3, weights
    sync 2
    runall $m3, $m9, 0
    setzi $m3, values
    sync 2
    runall $m3, $m9, 0
    add $m4, $m4, 64
    add $m5, $m5, 64
    add $m6, $m6, -2
    sync 2
    brz $m6, finished
    brpos $m6, rows
finished:
    br $m10

.worker
// Own run of keys: $m1 first, $m2 number, $m8 descriptor, $m0 keys.
.macro KEYS
    ld32 $m8, $m13, $m15, L_DESCRIPTOR
    ld32 $m0, $m8, $m15, ATTENTION_KEYS
    SPLIT
.endm

// Inner product of q at $m3 and k at $m1 over $m11 panels -> \result. $m8, $m9: bytes from a
// panel's row to the next panel's, less the 32 that the loop steps itself; the low bits of packed
// addresses take them by plain addition.
.macro DOT result
.p2align 3
    { tapack $m4:5, $m3, $m1, $m15 ; or64 $a0:1, $azeros, $azeros }
    { rpt $m11, 5 ; or64 $a2:3, $azeros, $azeros }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m15, 0 ; f16v4cmac $a0:1, $a2:3 }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m15, 0 ; f16v4cmac $a0:1, $a2:3 }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m15, 0 ; f16v4cmac $a0:1, $a2:3 }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m15, 0 ; f16v4cmac $a0:1, $a2:3 }
    { add $m4, $m4, $m8 ; fnop }
    { add $m5, $m5, $m9 ; fnop }
    f16v4cmac $a0:1, $a2:3
    f32v2gina $a0:1, $azeros, 0
    f32add \result, $a0, $a1
.endm

.p2align 3
scores:
    KEYS
    setzi $a0, 0
    or $a0, $a0, 0xff800000
    sort4x32lo $a6:7, $a0:1, $a0:1
    st64 $a6:7, $m12, $m15, LARGEST
    brz $m2, scores_done
    ld32 $m11, $m8, $m15, ATTENTION_PANELS
    ld32 $m4, $m8, $m15, ATTENTION_ROWS
    ld32 $m5, $m8, $m15, ATTENTION_K
    shl $m9, $m0, 5
    add $m9, $m9, -32
    shl $m3, $m1, 5
    shl $m6, $m1, 3
    add $m1, $m5, $m3              // k
    add $m6, $m6, $m13
    add $m6, $m6, 16               // scores
    ld32 $m10, $m8, $m15, ATTENTION_SCALE
    st32 $m10, $m12, $m15, 2 * SUMS
    shl $m8, $m4, 5
    add $m8, $m8, -32
    ld32 $m7, $m13, $m15, L_Q
    ld32 $m10, $m13, $m15, L_SECOND
    add $m10, $m10, $m7
    setzi $a0, 8
    { add $m2, $m2, -1 ; uput $FP_CLR, $a0 }
key:
    mov $m3, $m7
    DOT $a4
    mov $m3, $m10
    DOT $a5
    ld32 $a0, $m12, $m15, 2 * SUMS
    { add $m1, $m1, 32 ; f32v2mul $a4:5, $a0:B, $a4:5 }
    { st64step $a4:5, $m15, $m6+=, 1 ; f32v2max $a6:7, $a6:7, $a4:5 }
    brnzdec $m2, key
    st64 $a6:7, $m12, $m15, LARGEST
scores_done:
    exitz $m15

// $m4 = worker 0's area. Clobbers $m3.
.macro FIRST_AREA
    get $m3, $WSR
    and $m3, $m3, 7
    shl $m3, $m3, 8
    sub $m4, $m12, $m3
.endm

.p2align 3
weights:
    KEYS
    FIRST_AREA
    ld64step $a6:7, $m15, $m4+=, AREA_PAIRS
    ld64step $a0:1, $m15, $m4+=, AREA_PAIRS
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2max $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2max $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2max $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2max $a6:7, $a6:7, $a0:1 }
    { shl $m6, $m1, 3 ; f32v2max $a6:7, $a6:7, $a0:1 }
    { add $m6, $m6, $m13 ; or64 $a4:5, $azeros, $azeros }
    { add $m6, $m6, 16 ; or64 $a0:1, $azeros, $azeros }
    mov $m7, $m6
.p2align 3
    { rpt $m2, 4 ; fnop }
    { ld64step $a0:1, $m15, $m6+=, 1 ; f32v2add $a4:5, $a4:5, $a0:1 }
    { nop ; f32v2sub $a0:1, $a0:1, $a6:7 }
    { nop ; f32exp $a0, $a0 }
    { nop ; f32exp $a1, $a1 }
    { st64step $a0:1, $m15, $m7+=, 1 ; fnop }
    f32v2add $a4:5, $a4:5, $a0:1
    st64 $a4:5, $m12, $m15, SUMS
    exitz $m15

// Items are pairs of columns, panel by panel, 8 in each.
.p2align 3
values:
    ld32 $m8, $m13, $m15, L_DESCRIPTOR
    ld32 $m0, $m8, $m15, ATTENTION_OUT_PANELS
    shl $m0, $m0, 3
    SPLIT
    brz $m2, values_done
    FIRST_AREA
    add $m4, $m4, 8 * SUMS
    ld64step $a6:7, $m15, $m4+=, AREA_PAIRS
    ld64step $a0:1, $m15, $m4+=, AREA_PAIRS
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2add $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2add $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2add $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2add $a6:7, $a6:7, $a0:1 }
    f32v2add $a6:7, $a6:7, $a0:1
    f32oox $a6, $a6
    { add $m2, $m2, -1 ; f32oox $a7, $a7 }
    setzi $a0, 8
    { add $m6, $m13, 16 ; uput $FP_CLR, $a0 }
    ld32 $m9, $m8, $m15, ATTENTION_KEYS
    ld32 $m7, $m8, $m15, ATTENTION_V
    ld32 $m10, $m13, $m15, L_OUT
    ld32 $m11, $m13, $m15, L_SECOND
    ld32 $m8, $m8, $m15, ATTENTION_ROWS
pair:
    shr $m0, $m1, 3                // panel
    and $m3, $m1, 7
    shl $m3, $m3, 2
    mul $m4, $m0, $m9
    shl $m4, $m4, 5
    add $m4, $m4, $m3
    add $m4, $m4, $m7              // v
    mul $m5, $m0, $m8
    shl $m5, $m5, 5
    add $m5, $m5, $m3
    add $m5, $m5, $m10             // out
    { mov $m3, $m6 ; or64 $a0:1, $azeros, $azeros }
    or64 $a2:3, $azeros, $azeros
    or64 $a4:5, $azeros, $azeros
.p2align 3
    { rpt $m9, 1 ; fnop }
    { ld32step $a0, $m15, $m4+=, 8 ; f32v2aop $a2:3, $a4:5, 0 }
    { ld64step $a4:5, $m15, $m3+=, 1 ; f16v2tof32 $a2:3, $a0 }
    f32v2aop $a2:3, $a4:5, 0
    f32v2gina $a0:1, $azeros, 0    // first row
    f32v2gina $a2:3, $azeros, 0    // second row
    f32v2mul $a0:1, $a6:B, $a0:1
    { add $m1, $m1, 1 ; f32v2tof16 $a0, $a0:1 }
    { st32 $a0, $m5, $m15, 0 ; f32v2mul $a2:3, $a7:B, $a2:3 }
    { add $m5, $m5, $m11 ; f32v2tof16 $a2, $a2:3 }
    st32 $a2, $m5, $m15, 0
    brnzdec $m2, pair
values_done:
    exitz $m15

// One row: launches with the descriptor itself.
.p2align 3
one_scores:
    ld32 $m0, $m13, $m15, ATTENTION_KEYS
    SPLIT
    brz $m2, one_scored
    ld32 $m5, $m13, $m15, ATTENTION_K
    ld32 $m3, $m13, $m15, ATTENTION_Q
    ld32 $m11, $m13, $m15, ATTENTION_PANELS
    ld32 $m6, $m13, $m15, ATTENTION_SCRATCH
    ld32 $a7, $m13, $m15, ATTENTION_SCALE
    shl $m9, $m0, 5
    { add $m9, $m9, -32 ; setzi $a0, 8 }
    { shl $m7, $m1, 2 ; uput $FP_CLR, $a0 }
    add $m6, $m6, $m7
    shl $m1, $m1, 5
    add $m1, $m1, $m5
    add $m2, $m2, -1
one_key:
.p2align 3
    { tapack $m4:5, $m3, $m1, $m15 ; or64 $a0:1, $azeros, $azeros }
    { rpt $m11, 4 ; or64 $a2:3, $azeros, $azeros }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m15, 0 ; f16v4cmac $a0:1, $a2:3 }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m15, 0 ; f16v4cmac $a0:1, $a2:3 }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m15, 0 ; f16v4cmac $a0:1, $a2:3 }
    { ld2x64pace $a0:1, $a2:3, $m4:5+=, $m15, 0 ; f16v4cmac $a0:1, $a2:3 }
    { add $m5, $m5, $m9 ; fnop }
    f16v4cmac $a0:1, $a2:3
    f32v2gina $a0:1, $azeros, 0
    f32add $a0, $a0, $a1
    { add $m1, $m1, 32 ; f32mul $a0, $a0, $a7 }
    st32step $a0, $m15, $m6+=, 1
    brnzdec $m2, one_key
one_scored:
    exitz $m15

.p2align 3
one_values:
    ld32 $m0, $m13, $m15, ATTENTION_OUT_PANELS
    shl $m0, $m0, 3
    SPLIT
    brz $m2, one_done
    ld32 $m6, $m13, $m15, ATTENTION_SCRATCH
    ld32 $m9, $m13, $m15, ATTENTION_KEYS
    ld32 $m8, $m13, $m15, ATTENTION_V
    ld32 $m10, $m13, $m15, ATTENTION_OUT
    { mov $m3, $m6 ; setzi $a0, 8 }
    { mov $m7, $m12 ; uput $FP_CLR, $a0 }
    { shl $m0, $m1, 2 ; setzi $a6, 0 }
    { add $m10, $m10, $m0 ; or $a6, $a6, 0xff800000 }
    shl $m11, $m9, 5
    shr $m0, $m1, 3
    mul $m0, $m0, $m11
    { add $m8, $m8, $m0 ; or $a0, $a6, $azero }
    { and $m0, $m1, 7 ; or64 $a4:5, $azeros, $azeros }
    { shl $m0, $m0, 2 ; setzi $a1, 0 }
    add $m8, $m8, $m0
.p2align 3
    { rpt $m9, 0 ; fnop }
    { ld32step $a0, $m15, $m3+=, 1 ; f32max $a6, $a6, $a0 }
    { add $m11, $m11, -32 ; f32max $a6, $a6, $a0 }
    { add $m2, $m2, -1 ; fnop }
.p2align 3
    { rpt $m9, 4 ; fnop }
    { ld32step $a0, $m15, $m6+=, 1 ; f32add $a4, $a4, $a1 }
    { nop ; f32sub $a0, $a0, $a6 }
    { nop ; f32exp $a1, $a0 }
    { st32step $a1, $m15, $m7+=, 1 ; fnop }
    { st32step $a1, $m15, $m7+=, 1 ; fnop }
    f32add $a4, $a4, $a1
    f32oox $a6, $a4
one_pair:
    { mov $m4, $m8 ; or64 $a2:3, $azeros, $azeros }
    { add $m8, $m8, 4 ; or64 $a4:5, $azeros, $azeros }
    mov $m3, $m12
.p2align 3
    { rpt $m9, 1 ; fnop }
    { ld32step $a0, $m15, $m4+=, 8 ; f32v2mac $a2:3, $a4:5 }
    { ld64step $a4:5, $m15, $m3+=, 1 ; f16v2tof32 $a2:3, $a0 }
    { add $m1, $m1, 1 ; f32v2mac $a2:3, $a4:5 }
    { and $m4, $m1, 7 ; f32v2gina $a0:1, $azeros, 0 }
    f32v2mul $a0:1, $a6:B, $a0:1
    f32v2tof16 $a0, $a0:1
    st32step $a0, $m15, $m10+=, 1
    brnz $m4, one_next
    add $m8, $m8, $m11
one_next:
    brnzdec $m2, one_pair
one_done:
    exitz $m15

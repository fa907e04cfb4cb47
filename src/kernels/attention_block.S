// ATTENTION_BLOCK: a block of queries against a part of a head's keys: exponentials of the scaled
// scores, their sums, and their product with the values, not yet divided. Both products run on both
// sets of the matrix unit with f16 partials, 64 products a cycle, and both are turned, so that
// nothing has to go across lanes:
//
//   scores  [keys][16 queries]     = K [keys][D] . Q'    K is streamed; 16 rows of a panel of Q are
//                                                        just the coefficients of a K group
//   result  [channels][16 queries] = V' [channels][keys] . weights
//
// A panel of scores has a row of 16 queries a key: largest value, exponential and sum run down the
// keys, 4 or 8 queries an instruction. Turned in blocks of 16 x 16 the weights are coefficients.
//
//   once      turn V in `work`; zero its channels' columns behind the last key
//   16 queries
//     GROUPS launches of the scores, one for their largest values
//     weights   exp(scale (score - largest)) down-scaled by a power of two, so that the product
//               stays in range; sums in f32; turned to coefficients in `work`
//     keys / 16 launches of the result, which is turned to rows of queries as it goes to out
//
// Groups a 4 weights: 1 the largest, 6 the exponential (4 of f16v2exp, the roofline), 1/2 the sum,
// 1 turning. The exponent's argument is formed in f32 and rounded once: its error, at most 2^-12 of
// it, is worth x exp(-x) 2^-12 of the largest weight, no more than the weight's own rounding.
//
// s:    [16 KG][16] scores, rows behind the last key zero; 32 a row of zeros, 224 read ahead;
//       [16 PANELS][16] result of 16 queries; 256 read ahead. KG = keys / 16, rounded up.
// work: [KG][16][16] weights; [KG][16 PANELS][16] V turned; 64 read ahead.
// out:  [PANELS][16 N][16] f16, N = rows / 16 rounded up; f32 [16 N] largest scores, [16 N] sums.
// Queries behind the last row are calculated from whatever follows and mean nothing.
//
// Worker area, words: 0.. and 8.. the words of two products (common.S); then what is below.
F16_PRODUCT_NAMES
.set SCORES, 0
.set VALUES, 8
.set OWN_S, 16                 // address of the own groups of 16 rows of s
.set OWN_ROWS, 17              // rows with keys in them
.set OWN_GROUPS, 18
.set OWN_P, 19                 // their weights
.set OWN_V, 20
.set OWN_VT, 21
.set RESULT, 22                // address of the result in s
.set TO_OUT, 23                // own place in out, strides to turn it there
.set OUT_STRIDES, 24
.set STATS, 25                 // largest scores of these queries; bytes to their sums
.set TO_SUMS, 26
.set LARGEST, 128 / 8          // of the own rows, f16[16]
.set SUMS, 160 / 8             // of the own rows, f32[16]
.set MASK, 224 / 4
.set AREA_PAIRS, 32            // doublewords from one worker's area to the next

.supervisor
.p2align 3
ENTRY
    setzi $m3, prepare
    runall $m3, $m2, 0
    ld32 $m1, $m2, $m15, BLOCK_KEYS
    setzi $m3, turn_values
    ld32 $m4, $m2, $m15, BLOCK_ROWS
    ld32 $m5, $m2, $m15, BLOCK_Q
    and $m1, $m1, 15
    add $m4, $m4, -1
    shr $m4, $m4, 4
    sync 2
    runall $m3, $m2, 0
    setzi $m3, mask_values
    sync 2
    brz $m1, queries
    runall $m3, $m2, 0
    sync 2
queries:
    put $CCCSLOAD, $m5
    ld32 $m6, $m2, $m15, BLOCK_ROWS
    ld32 $m7, $m2, $m15, BLOCK_KEYS
    ld32 $m8, $m2, $m15, BLOCK_GROUPS
    ld32 $m9, $m2, $m15, BLOCK_K
    ld32 $m0, $m2, $m15, BLOCK_S
    F16_COEFFICIENTS 1
    setzi $m3, first_scores
    runall $m3, $m0, 0
    setzi $m3, rest_scores
    shl $m6, $m6, 5
    shl $m7, $m7, 5
    add $m8, $m8, -1
    mov $m1, $m5
    brz $m8, scored
    add $m8, $m8, -1
score:
    add $m1, $m1, $m6
    add $m9, $m9, $m7
    put $CCCSLOAD, $m1
    sync 2
    F16_COEFFICIENTS 1
    runall $m3, $m9, 0
    brnzdec $m8, score
scored:
    setzi $m3, largest
    ld32 $m1, $m2, $m15, BLOCK_KEYS
    ld32 $m0, $m2, $m15, BLOCK_WORK
    ld32 $m6, $m2, $m15, BLOCK_PANELS
    ld32 $m8, $m2, $m15, BLOCK_S
    sync 2
    runall $m3, $m2, 0
    setzi $m3, weights
    add $m1, $m1, -1
    shr $m1, $m1, 4                // K groups of the result after the first
    add $m7, $m1, 1
    shl $m7, $m7, 9
    add $m9, $m0, $m7              // V turned
    add $m8, $m8, $m7
    add $m8, $m8, 256              // result
    shl $m6, $m6, 9
    put $CCCSLOAD, $m0
    sync 2
    runall $m3, $m2, 0
    setzi $m3, first_values
    sync 2
    F16_COEFFICIENTS 1
    runall $m3, $m8, 0
    setzi $m3, rest_values
    brz $m1, valued
    add $m1, $m1, -1
value:
    add $m9, $m9, $m6
    sync 2
    F16_COEFFICIENTS 1
    runall $m3, $m9, 0
    brnzdec $m1, value
valued:
    setzi $m3, finish
    sync 2
    runall $m3, $m2, 0
    add $m5, $m5, 512
    sync 2
    brnzdec $m4, queries
    br $m10

.worker
// Launches of a product: the first of a panel with the address of the panel of results, the others
// with that of the group's panel of what is streamed.
.macro FIRST product
    ld32 $m2, $m12, $m15, \product + T_ROWS
    ld32 $m6, $m12, $m15, \product + T_OFFSET
    brneg $m2, no_rows
    ld32 $m7, $m12, $m15, \product + T_X
    add $m5, $m13, $m6
    add $m3, $m5, 32
    tapack $m0:1, $m6, $m3, $m5
    st32 $m0, $m12, $m15, \product + T_REST
    st32 $m1, $m12, $m15, \product + T_REST + 1
    st32 $m5, $m12, $m15, \product + T_OUT
    ld32 $m3, $m12, $m15, \product + T_FIRST
    setzi $m4, STRIDE_FIRST
    tapack $m0:1, $m7, $m3, $m5
    bri run_rows
.endm

// Turning. A strip of 4 columns from $m0 on, 16 $m5 rows 32 bytes apart, becomes 4 rows of 16 in
// each of $m5 blocks from $m3 on, 32 bytes apart too: down the strip, 4 x 4 values in 4 bundles of
// a load and a store, through the accumulators. Six rows more are read. $m4: strides, of which
// \reg, bits 20 and up, is from the end of a block's fourth row to the next block (TURN_STRIDES).
// Clobbers $m0, $m8, $m9, $a0..$a7.
.set TURN_NEXT, 1 | 1 << 2     // next row in, next row out
.set TURN_BACK, 1 | 2 << 2     // next four values of the first row out
.set TURN_BLOCK, 1 | 3 << 2
.macro TURN_STRIDES reg
    setzi $m4, 1013 << 10 & 0xfffff | 4
    or $m4, $m4, 1013 << 10 & 0xfff00000
    or \reg, \reg, $m4
.endm
.macro TURN_FOUR end
    { ldst64pace $a4:5, $a6:7, $m8:9+=, $m4, TURN_NEXT ; f16v4stacc $a6:7, 1 }
    { ldst64pace $a0:1, $a6:7, $m8:9+=, $m4, TURN_NEXT ; f16v4istacc $a6:7, $a0:1, $a2:3, 0 }
    { ldst64pace $a0:1, $a6:7, $m8:9+=, $m4, TURN_NEXT ; f16v4istacc $a6:7, $a4:5, $a0:1, 1 }
    { ldst64pace $a2:3, $a6:7, $m8:9+=, $m4, \end ; f16v4stacc $a6:7, 0 }
.endm
.macro TURN
    ld64step $a0:1, $m15, $m0+=, 4
    ld64step $a2:3, $m15, $m0+=, 4
    ld64step $a4:5, $m15, $m0+=, 4
    { ld64step $a0:1, $m15, $m0+=, 4 ; f16v4istacc $azeros, $a0:1, $a2:3, 0 }
    { ld64step $a0:1, $m15, $m0+=, 4 ; f16v4istacc $azeros, $a4:5, $a0:1, 1 }
    { ld64step $a2:3, $m15, $m0+=, 4 ; f16v4stacc $a6:7, 0 }
    tapack $m8:9, $m0, $m15, $m3
.p2align 3
    { rpt $m5, 15 ; fnop }
    TURN_FOUR TURN_BACK
    TURN_FOUR TURN_BACK
    TURN_FOUR TURN_BACK
    TURN_FOUR TURN_BLOCK
.endm

// The own rows of a product: $m0 rows; what is streamed starts at $m8, the row of zeros at $m9.
.macro OWN_PRODUCT product
    SPLIT
    add $m2, $m2, -1
    shl $m6, $m1, 5
    add $m8, $m8, $m6
    st32 $m2, $m12, $m15, \product + T_ROWS
    st32 $m6, $m12, $m15, \product + T_OFFSET
    st32 $m8, $m12, $m15, \product + T_X
    st32 $m9, $m12, $m15, \product + T_FIRST
.endm

// Launch with the descriptor.
.p2align 3
prepare:
    ld32 $m7, $m13, $m15, BLOCK_KEYS
    ld32 $m9, $m13, $m15, BLOCK_S
    add $m10, $m7, 15
    shr $m10, $m10, 4              // KG
    shl $m6, $m10, 9
    add $m9, $m9, $m6              // row of zeros
    add $m6, $m9, 256
    st32 $m6, $m12, $m15, RESULT
    mov $m0, $m7
    ld32 $m8, $m13, $m15, BLOCK_K
    OWN_PRODUCT SCORES
    // Worker 5 makes zeros behind the last key and the row of zeros.
    cmpeq $m3, $m3, 5
    brz $m3, zeroed
    shl $m4, $m10, 4
    sub $m4, $m4, $m7
    add $m4, $m4, 1
    shl $m4, $m4, 2
    shl $m5, $m7, 5
    ld32 $m6, $m13, $m15, BLOCK_S
    add $m6, $m6, $m5
.p2align 3
    { rpt $m4, 0 ; fnop }
    { st64step $azeros, $m15, $m6+=, 1 ; fnop }
zeroed:
    ld32 $m11, $m13, $m15, BLOCK_PANELS
    shl $m0, $m11, 4
    ld32 $m8, $m13, $m15, BLOCK_WORK
    shl $m6, $m10, 9
    add $m8, $m8, $m6
    OWN_PRODUCT VALUES
    mov $m0, $m10
    SPLIT
    st32 $m2, $m12, $m15, OWN_GROUPS
    shl $m2, $m2, 4
    shl $m6, $m1, 4
    sub $m7, $m7, $m6
    min $m2, $m2, $m7
    max $m2, $m2, 0
    st32 $m2, $m12, $m15, OWN_ROWS
    shl $m6, $m1, 9
    ld32 $m8, $m13, $m15, BLOCK_S
    add $m8, $m8, $m6
    st32 $m8, $m12, $m15, OWN_S
    ld32 $m8, $m13, $m15, BLOCK_V
    add $m8, $m8, $m6
    st32 $m8, $m12, $m15, OWN_V
    ld32 $m8, $m13, $m15, BLOCK_WORK
    add $m7, $m8, $m6
    st32 $m7, $m12, $m15, OWN_P
    shl $m10, $m10, 9
    add $m8, $m8, $m10
    mul $m6, $m6, $m11
    add $m8, $m8, $m6
    st32 $m8, $m12, $m15, OWN_VT
    // Four queries of the result to a worker, 0 to 3.
    ld32 $m8, $m13, $m15, BLOCK_OUT
    ld32 $m7, $m13, $m15, BLOCK_ROWS
    add $m7, $m7, 15
    shr $m7, $m7, 4                // N
    shl $m6, $m3, 7
    add $m6, $m6, $m8
    st32 $m6, $m12, $m15, TO_OUT
    mul $m6, $m7, $m11
    shl $m6, $m6, 9
    add $m8, $m8, $m6
    st32 $m8, $m12, $m15, STATS
    shl $m6, $m7, 6
    st32 $m6, $m12, $m15, TO_SUMS
    add $m6, $m6, -15
    shl $m6, $m6, 20
    TURN_STRIDES $m6
    st32 $m6, $m12, $m15, OUT_STRIDES
    exitz $m15

.p2align 3
first_scores:
    FIRST SCORES
.p2align 3
rest_scores:
    F16_REST SCORES
    bri run_rows
.p2align 3
first_values:
    FIRST VALUES
.p2align 3
rest_values:
    F16_REST VALUES
    bri run_rows

F16_RUN_ROWS

// The own keys of V, all channels.
.p2align 3
turn_values:
    ld32 $m5, $m12, $m15, OWN_GROUPS
    ld32 $m6, $m13, $m15, BLOCK_PANELS
    brz $m5, values_turned
    ld32 $m1, $m12, $m15, OWN_V
    ld32 $m3, $m12, $m15, OWN_VT
    shl $m7, $m6, 6
    add $m7, $m7, -15
    shl $m7, $m7, 20
    TURN_STRIDES $m7
    mov $m4, $m7
    ld32 $m7, $m13, $m15, BLOCK_KEYS
    shl $m7, $m7, 5
    add $m7, $m7, -32
    add $m6, $m6, -1
channels:
    setzi $m2, 3
strip:
    mov $m0, $m1
    TURN
    add $m1, $m1, 8
    add $m3, $m3, 128
    brnzdec $m2, strip
    add $m1, $m1, $m7
    brnzdec $m6, channels
values_turned:
    exitz $m15

// Zeros in the last block of V turned behind the last key, in the own channels.
.p2align 3
mask_values:
    ld32 $m2, $m12, $m15, VALUES + T_ROWS
    ld32 $m1, $m12, $m15, VALUES + T_X
    brneg $m2, masked
    ld32 $m7, $m13, $m15, BLOCK_KEYS
    ld32 $m6, $m13, $m15, BLOCK_PANELS
    shr $m5, $m7, 4
    mul $m5, $m5, $m6
    shl $m5, $m5, 9
    add $m1, $m1, $m5
    and $m0, $m7, 3
    and $m7, $m7, 12
    shl $m7, $m7, 1
    add $m1, $m1, $m7              // first quad with padding
    shr $m7, $m7, 3
    sub $m7, 4, $m7                // quads from there
    setzi $m4, 0xffff
    cmpslt $m5, $m0, 2
    add $m5, $m5, -1
    or $m5, $m5, $m4
    st32 $m5, $m12, $m15, MASK
    cmpslt $m5, $m0, 3
    add $m5, $m5, -1
    and $m5, $m5, $m4
    st32 $m5, $m12, $m15, MASK + 1
    ld64 $a2:3, $m12, $m15, MASK / 2
mask_row:
    mov $m3, $m1
    mov $m4, $m7
    brz $m0, mask_whole
    ld64 $a0:1, $m15, $m3, 0
    { add $m4, $m4, -1 ; and64 $a0:1, $a0:1, $a2:3 }
    st64step $a0:1, $m15, $m3+=, 1
mask_whole:
.p2align 3
    { rpt $m4, 0 ; fnop }
    { st64step $azeros, $m15, $m3+=, 1 ; fnop }
    add $m1, $m1, 32
    brnzdec $m2, mask_row
masked:
    exitz $m15

// Largest scores of the own rows: 8 queries at a time.
.p2align 3
largest:
    ld32 $m2, $m12, $m15, SCORES + T_ROWS
    ld32 $m6, $m12, $m15, SCORES + T_OUT
    brneg $m2, no_scores
    mov $m3, $m6
    ld128step $a0:3, $m15, $m3+=, 2
    or64 $a4:5, $a0:1, $azeros
    or64 $a6:7, $a2:3, $azeros
.p2align 3
    { rpt $m2, 1 ; fnop }
    { ld128step $a0:3, $m15, $m3+=, 2 ; f16v4max $a6:7, $a6:7, $a2:3 }
    { nop ; f16v4max $a4:5, $a4:5, $a0:1 }
    { add $m3, $m6, 16 ; f16v4max $a6:7, $a6:7, $a2:3 }
    st64 $a4:5, $m12, $m15, LARGEST
    st64 $a6:7, $m12, $m15, LARGEST + 1
    ld128step $a0:3, $m15, $m3+=, 2
    or64 $a4:5, $a0:1, $azeros
    or64 $a6:7, $a2:3, $azeros
.p2align 3
    { rpt $m2, 1 ; fnop }
    { ld128step $a0:3, $m15, $m3+=, 2 ; f16v4max $a6:7, $a6:7, $a2:3 }
    { nop ; f16v4max $a4:5, $a4:5, $a0:1 }
    f16v4max $a6:7, $a6:7, $a2:3
    st64 $a4:5, $m12, $m15, LARGEST + 2
    st64 $a6:7, $m12, $m15, LARGEST + 3
    exitz $m15
no_scores:
    setzi $a0, 0xfbfffbff & 0xfffff
    or $a0, $a0, 0xfbfffbff & 0xfff00000
    or $a1, $a0, $azero
    st64 $a0:1, $m12, $m15, LARGEST
    st64 $a0:1, $m12, $m15, LARGEST + 1
    st64 $a0:1, $m12, $m15, LARGEST + 2
    st64 $a0:1, $m12, $m15, LARGEST + 3
    exitz $m15

// $m3 = worker, $m11 = worker 0's area.
.macro WORKER_AREA
    get $m3, $WSR
    and $m3, $m3, 7
    shl $m11, $m3, 8
    sub $m11, $m12, $m11
.endm

.p2align 3
weights:
    WORKER_AREA
    ld32 $a0, $m13, $m15, BLOCK_SCALE
    { ld32 $m2, $m12, $m15, OWN_ROWS ; uput $TAS, $a0 }
    ld32 $a4, $m13, $m15, BLOCK_SHIFT
    setzi $a0, 8
    { add $m10, $m2, -1 ; uput $FP_CLR, $a0 }
    ld32 $m6, $m12, $m15, OWN_S
    ld32 $m9, $m12, $m15, STATS
    setzi $m7, 3
    add $m8, $m11, 8 * LARGEST
quad:
    mov $m4, $m8
    ld64step $a6:7, $m15, $m4+=, AREA_PAIRS
    ld64step $a0:1, $m15, $m4+=, AREA_PAIRS
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f16v4max $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f16v4max $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f16v4max $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f16v4max $a6:7, $a6:7, $a0:1 }
    { add $m8, $m8, 8 ; f16v4max $a6:7, $a6:7, $a0:1 }
    brnz $m3, exponentials
    f16v2tof32 $a0:1, $a6
    { st64step $a0:1, $m15, $m9+=, 1 ; f16v2tof32 $a0:1, $a7 }
    st64step $a0:1, $m15, $m9+=, 1
exponentials:
    mov $m0, $m6
    mov $m1, $m6
    brneg $m10, no_weights
    ld64step $a0:1, $m15, $m0+=, 4
    { ld64step $a0:1, $m15, $m0+=, 4 ; f16v4mix $azeros, $a0:1, $a6:7 }
    { ld64step $a0:1, $m15, $m0+=, 4 ; f16v4mix $a2:3, $a0:1, $a6:7 }
    f16v2exp $a2, $a2
    f16v2exp $a3, $a3
    f16v4mul $a2:3, $a4:BL, $a2:3
.p2align 3
    { rpt $m10, 3 ; fnop }
    { st64step $a2:3, $m15, $m1+=, 4 ; f16v4mix $a2:3, $a0:1, $a6:7 }
    { ld64step $a0:1, $m15, $m0+=, 4 ; f16v2exp $a2, $a2 }
    { nop ; f16v2exp $a3, $a3 }
    { nop ; f16v4mul $a2:3, $a4:BL, $a2:3 }
    st64step $a2:3, $m15, $m1+=, 4
no_weights:
    add $m6, $m6, 8
    brnzdec $m7, quad
    // Sums of 8 queries at a time.
    add $m6, $m6, -32
    add $m8, $m12, 8 * SUMS
    setzi $m7, 1
sum:
    mov $m0, $m6
    setzi $a4, 8
    { ld128step $a0:3, $m15, $m0+=, 2 ; uput $FP_CLR, $a4 }
.p2align 3
    { rpt $m2, 0 ; fnop }
    { ld128step $a0:3, $m15, $m0+=, 2 ; f16v8acc $a0:3 }
    f32v2gina $a0:1, $azeros, 0
    { st64step $a0:1, $m15, $m8+=, 1 ; f32v2gina $a0:1, $azeros, 0 }
    { st64step $a0:1, $m15, $m8+=, 1 ; f32v2gina $a0:1, $azeros, 0 }
    { st64step $a0:1, $m15, $m8+=, 1 ; f32v2gina $a0:1, $azeros, 0 }
    st64step $a0:1, $m15, $m8+=, 1
    add $m6, $m6, 16
    brnzdec $m7, sum
    // To coefficients.
    ld32 $m5, $m12, $m15, OWN_GROUPS
    setzi $m7, 0
    brz $m5, no_groups
    ld32 $m1, $m12, $m15, OWN_S
    ld32 $m3, $m12, $m15, OWN_P
    or $m7, $m7, 49 << 20
    TURN_STRIDES $m7
    mov $m4, $m7
    setzi $m2, 3
turn_weights:
    mov $m0, $m1
    TURN
    add $m1, $m1, 8
    add $m3, $m3, 128
    brnzdec $m2, turn_weights
no_groups:
    exitz $m15

// Workers 0 to 3 turn four queries each to out, 4 and 5 add up the sums of eight.
.p2align 3
finish:
    WORKER_AREA
    ld32 $m6, $m12, $m15, STATS
    add $m7, $m6, 64
    st32 $m7, $m12, $m15, STATS
    cmpslt $m7, $m3, 4
    brz $m7, total
    shl $m3, $m3, 3
    ld32 $m0, $m12, $m15, RESULT
    add $m0, $m0, $m3
    ld32 $m3, $m12, $m15, TO_OUT
    add $m7, $m3, 512
    st32 $m7, $m12, $m15, TO_OUT
    ld32 $m4, $m12, $m15, OUT_STRIDES
    ld32 $m5, $m13, $m15, BLOCK_PANELS
    TURN
    exitz $m15
total:
    ld32 $m7, $m12, $m15, TO_SUMS
    add $m6, $m6, $m7
    add $m3, $m3, -4
    shl $m3, $m3, 5
    add $m6, $m6, $m3
    add $m11, $m11, $m3
    add $m11, $m11, 8 * SUMS
    setzi $m7, 3
total_pair:
    mov $m4, $m11
    ld64step $a6:7, $m15, $m4+=, AREA_PAIRS
    ld64step $a0:1, $m15, $m4+=, AREA_PAIRS
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2add $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2add $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2add $a6:7, $a6:7, $a0:1 }
    { ld64step $a0:1, $m15, $m4+=, AREA_PAIRS ; f32v2add $a6:7, $a6:7, $a0:1 }
    { add $m11, $m11, 8 ; f32v2add $a6:7, $a6:7, $a0:1 }
    st64step $a6:7, $m15, $m6+=, 1
    brnzdec $m7, total_pair
    exitz $m15

// What all kernels share: row split, activations, last rounding. This text comes before each
// kernel's own; macros that a kernel does not use cost nothing.
//
// Symbols from outside: ACT, HAS_BIAS, OUT_F32, W_REGION1 of the variant, the ACT_* values, and
// the descriptor words (GEMM_X ...). ENTRY defines the kernel's global label.
//
// Workers own 256 bytes at $m12 (their worker base), in an element that holds no code:
//     0..127    the kernel's own
//     128..135  a spilled pair
//     160..255  constants, made by ACT_CONSTANTS: code cannot load from its own element, so
//               constants are composed in registers once a launch and kept here
// Words of that area as seen by 32-bit and 64-bit accesses:
.set SPILL_PAIR, 128 / 8
.set CONST_WORD, 160 / 4
.set CONST_PAIR, 160 / 8

// Bits of the AMP immediate are an assumption (phase in the low two, engines minus one above).
.set AMP_ALL, 3 << 2
// All engines, phase 0 to 3.
.set AMP0, AMP_ALL + 0
.set AMP1, AMP_ALL + 1
.set AMP2, AMP_ALL + 2
.set AMP3, AMP_ALL + 3

// $m0 = items -> $m1 = this worker's first, $m2 = its number, $m3 = worker. Clobbers $m4, $m5.
// Quotient by multiplication: exact below 98,304 items (43691 = ceil(2^18 / 6)).
.macro SPLIT
    get $m3, $WSR
    and $m3, $m3, 7
    setzi $m2, 43691
    mul $m2, $m0, $m2
    shr $m2, $m2, 18
    mul $m1, $m2, 6
    sub $m4, $m0, $m1
    mul $m1, $m2, $m3
    min $m5, $m3, $m4
    add $m1, $m1, $m5
    cmpslt $m5, $m3, $m4
    add $m2, $m2, $m5
.endm

// A matrix of $m8 rows and panels of four quads (4 columns each) dealt out to workers: by rows
// when each gets one, else by quads. -> $m1 first row, $m2 rows, $m6 first quad, $m7 quads.
// Clobbers $m0, $m3..$m5, $m10. Goes to `done` when the worker has nothing to do.
.macro SPLIT_MATRIX panels, done
    ld32 $m7, $m13, $m15, \panels
    shl $m7, $m7, 2
    cmpslt $m10, $m8, 6
    mov $m0, $m8
    movnz $m0, $m10, $m7
    SPLIT
    brnz $m10, split_quads
    setzi $m6, 0
    bri split_done
split_quads:
    mov $m6, $m1
    mov $m7, $m2
    setzi $m1, 0
    mov $m2, $m8
split_done:
    brz $m2, \done
    brz $m7, \done
.endm

// $m6 = quad, $m1 = first row, $m8 = rows of a panel -> $m0 = offset of their f16 bytes.
// Clobbers $m3.
.macro QUAD_OFFSET
    shr $m0, $m6, 2
    mul $m0, $m0, $m8
    add $m0, $m0, $m1
    shl $m0, $m0, 5
    and $m3, $m6, 3
    shl $m3, $m3, 3
    add $m0, $m0, $m3
.endm

// Composes a constant in \reg while constant \index - 1 is stored from \last.
.macro CONSTANT index, bits, reg, last
    { st32 \last, $m12, $m15, CONST_WORD + \index - 1 ; setzi \reg, (\bits) & 0xfffff }
    or \reg, \reg, (\bits) & 0xfff00000
.endm

.macro FIRST_CONSTANT bits
    setzi $a0, (\bits) & 0xfffff
    or $a0, $a0, (\bits) & 0xfff00000
.endm

// x Phi(x) = x sigmoid(x P(x^2)) with P(t) = logit(Phi(sqrt t)) / sqrt t, an even smooth function;
// our own minimax fit of degree 6 over |x| <= 6, weighted by the result's error: at most 7e-8
// before rounding. P stays above 1.59 for all t >= 0 and grows, so large |x| saturate. Stored:
// coefficients from t^6 down to t^0.
// tanh form: sqrt(8 / pi) * 0.044715, sqrt(8 / pi).
.macro ACT_CONSTANTS
.if ACT == ACT_GELU_ERF
    FIRST_CONSTANT 0x31782914
    CONSTANT 1, 0xb48f4960, $a1, $a0
    CONSTANT 2, 0x37052e5e, $a0, $a1
    CONSTANT 3, 0xb8e7b1ac, $a1, $a0
    CONSTANT 4, 0xb88af4f8, $a0, $a1
    CONSTANT 5, 0x3d94d342, $a1, $a0
    CONSTANT 6, 0x3fcc4224, $a0, $a1
    st32 $a0, $m12, $m15, CONST_WORD + 6
.endif
.if ACT == ACT_GELU_TANH
    FIRST_CONSTANT 0x3d922279
    CONSTANT 1, 0x3fcc422a, $a1, $a0
    st32 $a1, $m12, $m15, CONST_WORD + 1
.endif
.endm

// x in $a0:1 -> x Phi(x) by the fit above; Horner in $a2:3, t in $a4:5.
.macro GELU_ERF
    { ld64 $a6:7, $m12, $m15, CONST_PAIR ; f32v2mul $a4:5, $a0:1, $a0:1 }
    f32v2mul $a2:3, $a6:B, $a4:5
    { ld64 $a6:7, $m12, $m15, CONST_PAIR + 1 ; f32v2add $a2:3, $a7:B, $a2:3 }
    f32v2mul $a2:3, $a2:3, $a4:5
    f32v2add $a2:3, $a6:B, $a2:3
    f32v2mul $a2:3, $a2:3, $a4:5
    { ld64 $a6:7, $m12, $m15, CONST_PAIR + 2 ; f32v2add $a2:3, $a7:B, $a2:3 }
    f32v2mul $a2:3, $a2:3, $a4:5
    f32v2add $a2:3, $a6:B, $a2:3
    f32v2mul $a2:3, $a2:3, $a4:5
    { ld32 $a6, $m12, $m15, CONST_WORD + 6 ; f32v2add $a2:3, $a7:B, $a2:3 }
    f32v2mul $a2:3, $a2:3, $a4:5
    f32v2add $a2:3, $a6:B, $a2:3
    f32v2mul $a2:3, $a0:1, $a2:3
    f32sigm $a2, $a2
    f32sigm $a3, $a3
    f32v2mul $a0:1, $a0:1, $a2:3
.endm

// x in $a0:1 -> x sigmoid(sqrt(8/pi) (x + 0.044715 x^3)), which is the tanh form of GELU since
// (1 + tanh u) / 2 = sigmoid(2 u). The argument needs no clamp: sigmoid saturates to exactly 0
// and 1, infinities included, and 0 times a finite x is 0.
.macro GELU_TANH
    { ld64 $a6:7, $m12, $m15, CONST_PAIR ; f32v2mul $a4:5, $a0:1, $a0:1 }
    f32v2mul $a4:5, $a6:B, $a4:5
    f32v2add $a4:5, $a7:B, $a4:5
    f32v2mul $a4:5, $a0:1, $a4:5
    f32sigm $a4, $a4
    f32sigm $a5, $a5
    f32v2mul $a0:1, $a0:1, $a4:5
.endm

// Activation of the pair in $a0:1. Clobbers $a2..$a7.
.macro ACT_PAIR
.if ACT == ACT_RELU
    f32v2max $a0:1, $a0:1, $azeros
.endif
.if ACT == ACT_TANH
    f32tanh $a0, $a0
    f32tanh $a1, $a1
.endif
.if ACT == ACT_SIGMOID
    f32sigm $a0, $a0
    f32sigm $a1, $a1
.endif
.if ACT == ACT_GELU_ERF
    GELU_ERF
.endif
.if ACT == ACT_GELU_TANH
    GELU_TANH
.endif
.endm

// f32 quad in $a0:3 -> activation, one rounding, 8 bytes stored at \out, which steps by \step
// doublewords. Clobbers all of $a0..$a7. Only the long activations need all registers for a pair.
.macro FINISH_QUAD out, step
.if ACT == ACT_GELU_ERF || ACT == ACT_GELU_TANH
    st64 $a2:3, $m12, $m15, SPILL_PAIR
    ACT_PAIR
    f32v2tof16 $a0, $a0:1
    st32step $a0, $m15, \out+=, 1
    ld64 $a0:1, $m12, $m15, SPILL_PAIR
    ACT_PAIR
    f32v2tof16 $a0, $a0:1
    st32step $a0, $m15, \out+=, 2 * \step - 1
.else
    ACT_PAIR
.if ACT == ACT_RELU
    f32v2max $a2:3, $a2:3, $azeros
.endif
.if ACT == ACT_TANH
    f32tanh $a2, $a2
    f32tanh $a3, $a3
.endif
.if ACT == ACT_SIGMOID
    f32sigm $a2, $a2
    f32sigm $a3, $a3
.endif
    f32v4tof16 $a0:1, $a0:3
    st64step $a0:1, $m15, \out+=, \step
.endif
.endm

// f16 quad in $a4:5 plus f16 quad in $a6:7 -> f32 sums in $a0:3. $a0:1 must already hold the
// first half of $a4:5, which is done beside the second load.
.macro SUM_QUADS
    f16v2tof32 $a2:3, $a5
    f16v2tof32 $a4:5, $a6
    f32v2add $a0:1, $a0:1, $a4:5
    f16v2tof32 $a4:5, $a7
    f32v2add $a2:3, $a2:3, $a4:5
.endm

// Lane masks of a row's partial quad in the worker area: of f16 in pair 0, of f32 in pairs 1 and
// 2. $m0 = its columns, 1 to 3. Clobbers $m3..$m5.
.macro LANE_MASK i, reg
    add $m3, $m0, -\i
    sub \reg, 0, $m3
    shrs \reg, \reg, 31
    st32 \reg, $m12, $m15, 2 + \i
.endm
.macro LANE_MASKS
    LANE_MASK 0, $m4
    LANE_MASK 1, $m5
    sort4x16lo $m4, $m4, $m5
    st32 $m4, $m12, $m15, 0
    LANE_MASK 2, $m4
    LANE_MASK 3, $m5
    sort4x16lo $m4, $m4, $m5
    st32 $m4, $m12, $m15, 1
.endm

// A row's logical columns: $m8 whole panels, $m10 columns of a tail panel or 0, $m9 step from a
// panel's last quad to the next panel in doublewords. SUM_PANELS adds the whole panels at $m3 to
// accumulators 0, 2, 4, 6 but for the quad left in $a0:1, SUM_TAIL that quad and the tail at $m3;
// SUM_TAKE moves the total to $a0 and clears. Clobber $m0, $a0..$a3.
.macro SUM_PANELS
    or64 $a0:1, $azeros, $azeros
.p2align 3
    { rpt $m8, 3 ; fnop }
    { ld64step $a0:1, $m15, $m3+=, 1 ; f16v4acc $a0:1 }
    { ld64step $a0:1, $m15, $m3+=, 1 ; f16v4acc $a0:1 }
    { ld64step $a0:1, $m15, $m3+=, 1 ; f16v4acc $a0:1 }
    { ld64step $a0:1, $m15, $m3+=, $m9 ; f16v4acc $a0:1 }
.endm
.macro SUM_TAIL
    shr $m0, $m10, 2
.p2align 3
    { rpt $m0, 0 ; fnop }
    { ld64step $a0:1, $m15, $m3+=, 1 ; f16v4acc $a0:1 }
    { and $m0, $m10, 3 ; f16v4acc $a0:1 }
    brz $m0, sum_tail_done\@
    ld64 $a0:1, $m15, $m3, 0
    ld64 $a2:3, $m12, $m15, 0
    and64 $a0:1, $a0:1, $a2:3
    f16v4acc $a0:1
sum_tail_done\@:
.endm
.macro SUM_TAKE
    f32v2gina $a0:1, $azeros, 0
    f32v2gina $a2:3, $azeros, 0
    f32v2add $a0:1, $a0:1, $a2:3
    f32add $a0, $a0, $a1
.endm

// x to the y in f32 -> \x. Clobbers \y, $a4..$a7. x < 0 with an exponent that is no integer is NaN,
// with an odd one negative; 0 to the 0 is 1, which the bound of the logarithm sees to.
.macro POW_ONE x, y
    or $a4, $azero, 0x80000000
    andc $a5, \x, $a4              // size
    and $a4, \x, $a4               // sign
    f32cmplt \x, \x, $azero
    f32log2 $a5, $a5
    or $a7, $azero, 0xf1400000     // about -1e30
    f32max $a5, $a5, $a7
    f32mul $a5, $a5, \y
    f32exp2 $a5, $a5
    f32int $a6, \y, 3
    f32cmpeq $a6, $a6, \y          // integer
    andc \x, \x, $a6               // NaN: all ones
    or $a7, $azero, 0x3f000000     // 1/2
    f32mul \y, \y, $a7
    f32int $a7, \y, 3
    f32cmpeq $a7, $a7, \y          // even
    andc $a4, $a4, $a7
    or $a5, $a5, $a4
    or \x, $a5, \x
.endm

// A supervisor routine that launches the six workers once at label `worker`.
.macro LAUNCH_ONCE
.supervisor
.p2align 3
ENTRY
    setzi $m3, worker
    runall $m3, $m2, 0
    sync 2
    br $m10
.worker
.p2align 3
worker:
.endm

// $m0 = doublewords to map -> the worker's own run: $m6 at x, $m7 at out, $m2 = doublewords - 1.
// Goes to `done` when it has none. Clobbers $m1, $m3..$m5.
.macro OWN_RUN x, out
    SPLIT
    brz $m2, done
    ld32 $m6, $m13, $m15, \x
    ld32 $m7, $m13, $m15, \out
    shl $m1, $m1, 3
    add $m6, $m6, $m1
    add $m7, $m7, $m1
    add $m2, $m2, -1
.endm

// ---- Rows of panels, dealt out in one of two ways (layernorm.S, softmax.S) ----------------------

// Many rows: runs of rows, one launch of rows_worker. Few wide rows: a run of panels of every row,
// three launches apart. Words of a worker's area from RUN on: 0..6 the registers of KEEP_RUN.
.set RUN, 96 / 4
.set AREA_WORDS, 64            // from one worker's area to the next

// The supervisor's part to its end; $m4 columns, $m5 rows. What counts is the panels a worker works
// through, per launch: rows / 6 times all, or rows times a sixth.
.macro ROWS_OR_PANELS first, second, third
    setzi $m3, rows_worker
    add $m4, $m4, 15
    shr $m4, $m4, 4
    cmpult $m6, $m5, 6
    brz $m6, last_launch
    setzi $m7, 43691
    add $m6, $m4, 5
    mul $m6, $m6, $m7
    shr $m6, $m6, 18
    mul $m6, $m6, $m5
    add $m6, $m6, 1
    cmpult $m6, $m6, $m4
    brz $m6, last_launch
    setzi $m3, \first
    runall $m3, $m2, 0
    setzi $m3, \second
    sync 2
    runall $m3, $m2, 0
    setzi $m3, \third
    sync 2
last_launch:
    runall $m3, $m2, 0
    sync 2
    br $m10
.endm

// A worker's own run of panels: $m6 x and $m7 out, both of panel 0, $m8 whole panels, $m9 rows,
// $m10 columns of a tail panel that is its own or 0, $m1 first panel, $m3 the worker's number.
.macro OWN_PANELS x, out, rows, columns
    ld32 $m10, $m13, $m15, \columns
    add $m0, $m10, 15
    shr $m0, $m0, 4
    SPLIT
    ld32 $m6, $m13, $m15, \x
    ld32 $m7, $m13, $m15, \out
    ld32 $m9, $m13, $m15, \rows
    mov $m8, $m2
    and $m10, $m10, 15
    add $m2, $m1, $m8
    cmpeq $m2, $m2, $m0            // the last panel is ours, unless we have none
    brz $m2, no_tail
    brz $m8, no_tail
    brz $m10, tail_known
    add $m8, $m8, -1
    bri tail_known
no_tail:
    setzi $m10, 0
tail_known:
.endm

// Registers of an own run of panels: found in the first launch, kept for the others; op is st32 or
// ld32.
.macro RUN_REGISTERS op
    \op $m2, $m12, $m15, RUN
    \op $m5, $m12, $m15, RUN + 1
    \op $m6, $m12, $m15, RUN + 2
    \op $m8, $m12, $m15, RUN + 3
    \op $m9, $m12, $m15, RUN + 4
    \op $m10, $m12, $m15, RUN + 5
.endm
.macro KEEP_RUN
    RUN_REGISTERS st32
    st32 $m7, $m12, $m15, RUN + 6
.endm
.macro RESTORE_RUN
    RUN_REGISTERS ld32
.endm

// ---- Rows of a product through the matrix unit (gemm_amp.S, and F16_RUN_ROWS) -------------------

// Selectors (x, partials, result) of a bundle that ends no row, and of the one that ends a row of
// partials.
.set PACE, 0
.set PACE_END, 2 << 2

// The own rows: $m2 = rows - 1, $m0:1 packed pointers, $m3 = first row of partials, $m4 strides,
// $a6 = 8, which clears the accumulators. pace_1: selectors of phase 1 with a result.
// Issue i = 4 row + phase takes x word i and the partials of word i + 4 (the next row's), and
// ejects word i - 4 of the results. Bundle i loads for bundle i + 1 and stores what bundle i - 2
// ejected: the partials are read 11 words ahead of the results written, an odd distance, hence
// different halves of an interleaved pair (rows of partials and out are 16-aligned).
.macro AMP_ROWS amp, pace_1
    { ld64 $a0:1, $m3, $m15, 0 ; uput $FP_CLR, $a6 }
    { ld64 $a2:3, $m3, $m15, 1 ; \amp $azeros, $azeros, $a0:1, AMP0 }
    { ld64 $a0:1, $m3, $m15, 2 ; \amp $azeros, $azeros, $a2:3, AMP1 }
    { ld64 $a2:3, $m3, $m15, 3 ; \amp $azeros, $azeros, $a0:1, AMP2 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m4, PACE ; \amp $azeros, $azeros, $a2:3, AMP3 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m4, PACE ; \amp $azeros, $a0:1, $a2:3, AMP0 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m4, PACE ; \amp $azeros, $a0:1, $a2:3, AMP1 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m4, PACE_END ; \amp $azeros, $a0:1, $a2:3, AMP2 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m4, PACE ; \amp $azeros, $a0:1, $a2:3, AMP3 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m4, PACE ; \amp $a4:5, $a0:1, $a2:3, AMP0 }
    { ld2x64pace $a0:1, $a2:3, $m0:1+=, $m4, PACE ; \amp $a6:7, $a0:1, $a2:3, AMP1 }
.p2align 3
    { rpt $m2, 3 ; fnop }
    { ld2xst64pace $a0:3, $a4:5, $m0:1+=, $m4, PACE_END ; \amp $a4:5, $a0:1, $a2:3, AMP2 }
    { ld2xst64pace $a0:3, $a6:7, $m0:1+=, $m4, PACE ; \amp $a6:7, $a0:1, $a2:3, AMP3 }
    { ld2xst64pace $a0:3, $a4:5, $m0:1+=, $m4, PACE ; \amp $a4:5, $a0:1, $a2:3, AMP0 }
    { ld2xst64pace $a0:3, $a6:7, $m0:1+=, $m4, \pace_1 ; \amp $a6:7, $a0:1, $a2:3, AMP1 }
    { st64pace $a4:5, $m0:1+=, $m4, 0 ; \amp $a4:5, $azeros, $azeros, AMP2 }
    { st64pace $a6:7, $m0:1+=, $m4, 0 ; \amp $a6:7, $azeros, $azeros, AMP3 }
    st64pace $a4:5, $m0:1+=, $m4, 0
    st64pace $a6:7, $m0:1+=, $m4, 0
.endm

// ---- Products with both sets of the matrix unit (gemm_f16.S, attention_block.S) -----------------

// Words of a worker's area, one set a product: rows - 1; byte offset of the first row in a panel;
// address of the own rows of x in the first panel; address of the row of first partials; packed
// pointers of the groups after the first (A0 relative to the panel of x, A1 = partials of the
// second row, A2 = results); address of the own rows of out. S1 of the strides = partials to the
// next row, which for the first group is the start of the same row again.
.macro F16_PRODUCT_NAMES
.set T_ROWS, 0
.set T_OFFSET, 1
.set T_X, 2
.set T_FIRST, 3
.set T_REST, 4
.set T_OUT, 6
.set STRIDE_REST, 1 << 10
.set STRIDE_FIRST, 1021 << 10
.endm

.macro F16_COEFFICIENTS_8 n, is_wide
.if \is_wide
    ld128putcs \n
    ld128putcs \n + 2
    ld128putcs \n + 4
    ld128putcs \n + 6
.else
    ld64putcs \n
    ld64putcs \n + 1
    ld64putcs \n + 2
    ld64putcs \n + 3
    ld64putcs \n + 4
    ld64putcs \n + 5
    ld64putcs \n + 6
    ld64putcs \n + 7
.endif
.endm

// Two channels to a set, the sets in turn. is_wide: they lie in region 1.
.macro F16_COEFFICIENTS is_wide
    F16_COEFFICIENTS_8 0, \is_wide
    F16_COEFFICIENTS_8 32, \is_wide
    F16_COEFFICIENTS_8 8, \is_wide
    F16_COEFFICIENTS_8 40, \is_wide
    F16_COEFFICIENTS_8 16, \is_wide
    F16_COEFFICIENTS_8 48, \is_wide
    F16_COEFFICIENTS_8 24, \is_wide
    F16_COEFFICIENTS_8 56, \is_wide
.endm

// Start of a launch of any group but the first, with the address of the group's panel of x.
// product: word of the area where its words begin.
.macro F16_REST product
    ld32 $m2, $m12, $m15, \product + T_ROWS
    ld32 $m0, $m12, $m15, \product + T_REST
    brneg $m2, no_rows
    ld32 $m1, $m12, $m15, \product + T_REST + 1
    ld32 $m3, $m12, $m15, \product + T_OUT
    add $m0, $m0, $m13
    setzi $m4, STRIDE_REST
.endm
// The own rows, as AMP_ROWS says, and the end of launches that have none.
.macro F16_RUN_ROWS
.p2align 3
run_rows:
    setzi $a6, 8
    AMP_ROWS f16v4hihov4amp, PACE
no_rows:
    exitz $m15
.endm

// Tile runtime: start, host phases, sampling. Every program links it; rt_start comes first.
//
// Symbols from outside: the RT_* addresses of runtime.h. Registers: m2 descriptor, m10 link;
// routines clobber m0..m9. Host exchange follows the packet formats and barrier roles of the
// device fact sheet, sections 6.1 to 6.5.
.set MUX_HOST, 0x600
.set MUX_IDLE, 0x640
.set WORKER_AREA, RT_STATE + 0x80
.set WORKER_AREA_BYTES, 0x100
.set BOTH_WAYS, 3              // packets to the host leave east and west
.set WRITE_HEADERS, RT_HEADERS + 16 * 8
.set CLOSE_HEADER, RT_HEADERS + 32 * 8

.supervisor
.p2align 3
.globl rt_start
rt_start:
    sync 3                     // all tiles are loaded
    sync 2                     // no worker of the loader runs
    setzi $m0, MUX_IDLE
    put $INCOMING_MUX, $m0
    put $INCOMING_FORMAT, $m15
    put $OUTGOING_BASE, $m15
    // Workers start with traps and stochastic rounding off.
    put $FP_ICTL, $m15
    put $FP_INFMT, $m15
    put $FP_ISCL, $m15
    setzi $m0, WORKER_AREA
    put $WORKER0_BASE, $m0
    add $m0, $m0, WORKER_AREA_BYTES
    put $WORKER1_BASE, $m0
    add $m0, $m0, WORKER_AREA_BYTES
    put $WORKER2_BASE, $m0
    add $m0, $m0, WORKER_AREA_BYTES
    put $WORKER3_BASE, $m0
    add $m0, $m0, WORKER_AREA_BYTES
    put $WORKER4_BASE, $m0
    add $m0, $m0, WORKER_AREA_BYTES
    put $WORKER5_BASE, $m0
    setzi $m0, RT_STATE
    st32 $m15, $m0, $m15, 0
    st32 $m15, $m0, $m15, 1
    st32 $m15, $m0, $m15, 2
    setzi $m1, rt_worker_start
    runall $m1, $m0, 0
    sync 2
    setzi $m0, MUX_HOST        // zones of group 2 need an external multiplexer
    put $INCOMING_MUX, $m0
    sync 7
    setzi $m0, MUX_IDLE
    put $INCOMING_MUX, $m0
    setzi $m0, RT_PROGRAM
    ld32 $m0, $m0, $m15, 0
    br $m0

.worker
rt_worker_start:
    uput $FP_CTL, $azero
    setzi $a0, 15              // clear flags and accumulators
    uput $FP_CLR, $a0
    setzi $a0, 1
    uput $PRNG_SEED, $a0
    exitz $m15

.supervisor
// Entry of a host phase: connects the multiplexer, leaves chunks in $m3 and the owner bit in
// $m4, puts the grant where its packet is sent from, and passes the entry barrier.
.macro HOST_ENTER target, entered
    get $m5, $TILE_ID
    and $m5, $m5, 0x3d
    add $m5, $m5, MUX_HOST
    put $INCOMING_MUX, $m5
    ld32 $m3, $m2, $m15, 0
    ld32 $m4, $m2, $m15, 1
    and $m4, $m4, 1
    brz $m4, \target
    setzi $m6, RT_GRANT
    ld32 $m5, $m2, $m15, 2
    st32 $m5, $m6, $m15, 0
    ld32 $m5, $m2, $m15, 3
    st32 $m5, $m6, $m15, 1
    sync 15
    bri \entered
\target:
    sync 7
\entered:
.endm

// Sends the grant of an owner; others pass.
.macro HOST_GRANT skip
    brz $m4, \skip
    send 1, RT_GRANT / 4, BOTH_WAYS
\skip:
.endm

.macro HOST_LEAVE
    sync 7
    setzi $m5, MUX_IDLE
    put $INCOMING_MUX, $m5
.endm

// Request i of a table of headers; the chunk's words follow when it is a write. Tables run from
// chunk 15 down to chunk 0, so n chunks are the last n requests, whose last one closes the stream.
.macro READ_REQUEST i
    send 1, (RT_HEADERS + 8 * \i) / 4, BOTH_WAYS
.endm
.macro WRITE_REQUEST i
    send 1, (WRITE_HEADERS + 8 * \i) / 4, BOTH_WAYS
    send 63, (RT_STAGING + 256 * (15 - \i)) / 4, BOTH_WAYS
.endm

.globl rt_host_in
rt_host_in:
    HOST_ENTER in_target, in_entered
    shl $m5, $m3, 6
    put $INCOMING_DCOUNT, $m5
    HOST_GRANT in_granted
    brz $m3, in_leave
    setzi $m5, in_end
    shl $m6, $m3, 2
    sub $m5, $m5, $m6
    br $m5
    READ_REQUEST 0
    READ_REQUEST 1
    READ_REQUEST 2
    READ_REQUEST 3
    READ_REQUEST 4
    READ_REQUEST 5
    READ_REQUEST 6
    READ_REQUEST 7
    READ_REQUEST 8
    READ_REQUEST 9
    READ_REQUEST 10
    READ_REQUEST 11
    READ_REQUEST 12
    READ_REQUEST 13
    READ_REQUEST 14
    READ_REQUEST 15
in_end:
    sync 0
in_leave:
    HOST_LEAVE
    setzi $m5, rt_copy_in
    runall $m5, $m2, 0
    sync 2
    br $m10

.globl rt_host_out
rt_host_out:
    setzi $m5, rt_copy_out
    runall $m5, $m2, 0
    sync 2
    HOST_ENTER out_target, out_entered
    cmpslt $m5, $m15, $m3      // the close request brings one word
    put $INCOMING_DCOUNT, $m5
    HOST_GRANT out_granted
    brz $m3, out_leave
    setzi $m5, out_end
    shl $m6, $m3, 3
    sub $m5, $m5, $m6
    br $m5
    WRITE_REQUEST 0
    WRITE_REQUEST 1
    WRITE_REQUEST 2
    WRITE_REQUEST 3
    WRITE_REQUEST 4
    WRITE_REQUEST 5
    WRITE_REQUEST 6
    WRITE_REQUEST 7
    WRITE_REQUEST 8
    WRITE_REQUEST 9
    WRITE_REQUEST 10
    WRITE_REQUEST 11
    WRITE_REQUEST 12
    WRITE_REQUEST 13
    WRITE_REQUEST 14
    WRITE_REQUEST 15
out_end:
    send 1, CLOSE_HEADER / 4, BOTH_WAYS
    sync 0                     // all writes before it are in host memory
out_leave:
    HOST_LEAVE
    br $m10

// Copies of a phase's pieces: each worker takes every sixth word of each piece.
// \from, \to: registers of the piece's staging and tile address ($m4, $m3 or the reverse).
.macro COPY_PIECES from, to, piece, done
    get $m0, $WSR
    and $m0, $m0, 7
    shl $m8, $m0, 2
    ld32 $m1, $m13, $m15, 4
    setzi $m9, RT_STAGING
    add $m9, $m9, $m8
    add $m2, $m13, 20
    sub $m0, 5, $m0            // words + 5 - worker, over 6, is this worker's share
    setzi $m10, 43691
    brz $m1, \done
    add $m1, $m1, -1
.p2align 3
\piece:
    ld32step $m3, $m15, $m2+=, 1
    ld32step $m4, $m15, $m2+=, 1
    ld32step $m5, $m15, $m2+=, 1
    add $m3, $m3, $m8
    add $m4, $m4, $m9
    add $m5, $m5, $m0
    mul $m5, $m5, $m10
    shr $m5, $m5, 18
.p2align 3
    { rpt $m5, 1 ; fnop }
    { ld32step $m6, $m15, \from+=, 6 ; fnop }
    { st32step $m6, $m15, \to+=, 6 ; fnop }
    brnzdec $m1, \piece
\done:
    exitz $m15
.endm

.worker
.p2align 3
.globl rt_copy_in
rt_copy_in:
    COPY_PIECES $m4, $m3, in_piece, in_copied
.p2align 3
.globl rt_copy_out
rt_copy_out:
    COPY_PIECES $m3, $m4, out_piece, out_copied

.supervisor
.p2align 3
.globl rt_advance
rt_advance:
    setzi $m5, rt_advance_words
    runall $m5, $m2, 0
    sync 2
    br $m10

// Each worker takes every sixth pair of the list.
.worker
.p2align 3
rt_advance_words:
    get $m0, $WSR
    and $m0, $m0, 7
    shl $m0, $m0, 3
    ld32 $m1, $m13, $m15, 0
    ld32 $m2, $m13, $m15, 1
    ld32 $m3, $m13, $m15, 2
    add $m3, $m3, $m0
    add $m1, $m1, -1
advance_word:
    ld32step $m4, $m15, $m3+=, 1
    ld32step $m5, $m15, $m3+=, 11
    ld32 $m6, $m4, $m15, 0
    mul $m5, $m5, $m2
    add $m6, $m6, $m5
    st32 $m6, $m4, $m15, 0
    brnzdec $m1, advance_word
    exitz $m15

.supervisor
.p2align 3
.globl rt_sample_start
rt_sample_start:
    setzi $m9, RT_STATE
    get $m8, $SCOUNT_L
    st32 $m8, $m9, $m15, 0
    br $m10

.globl rt_sample_end
rt_sample_end:
    get $m8, $SCOUNT_L
    setzi $m9, RT_STATE
    st32 $m8, $m9, $m15, 1
    ld32 $m8, $m9, $m15, 2
    add $m8, $m8, 1
    st32 $m8, $m9, $m15, 2
    br $m10

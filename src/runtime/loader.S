// Secondary boot loader: takes images from the host in the frames of the device fact sheet, 4.3,
// with its barrier structure, 4.4 to 4.6.
//
// Code cannot load data from its own memory element, and no packet may land in it. So: `boot`
// (element 0, where the autoloader puts the whole loader) composes a copy loop in element 11 word
// by word and jumps there; the loop copies `resident` from element 0 to element 12; that does the
// work. At the end a loop composed in the first 16 bytes of element 0, below the image, erases
// the resident part and falls into the application at its end.
//
// Assembled in two parts: PART 0 has what is composed (its words become symbols COPY_W0.. and
// CLEAR_W0..), PART 1 the rest.
//
// Work area, above what images may cover: +0 descriptor (received), +8 grant, +16 header of the
// next request, +32 the 16 bytes that the next frame's header will overwrite.
.set RESIDENT, 0x7c000
.set COPY, 0x78000
.set BASE, 0x4c000
.set WORK, 0xe7be0
.set W_DESCRIPTOR, 0
.set W_GRANT, 2
.set W_HEADER, 4
.set W_SAVED, 8
.set FRAME_BYTES, 992
.set MAX_FRAMES, 198           // the last frame's trailer ends below RESIDENT
.set STREAM_END, 0x0c000000
.set ROWS, 23

.if PART == 0

.section .copy
.supervisor
copy:
    ld32step $m0, $m15, $m1+=, 1
    st32step $m0, $m15, $m2+=, 1
    brnzdec $m3, copy
    bri RESIDENT

.section .clear
.supervisor
clear:
    st32step $m15, $m15, $m1+=, 1
    brnzdec $m3, clear
    nop
    nop

.else

.macro COMPOSE word
    setzi $m0, (\word) & 0xfffff
    or $m0, $m0, (\word) & 0xfff00000
    st32step $m0, $m15, $m1+=, 1
.endm

.section .boot
.supervisor
    setzi $m1, COPY
    COMPOSE COPY_W0
    COMPOSE COPY_W1
    COMPOSE COPY_W2
    COMPOSE COPY_W3
    setzi $m1, RESIDENT_FROM
    setzi $m2, RESIDENT
    setzi $m3, RESIDENT_WORDS - 1
    bri COPY

.section .resident
.supervisor
    setzi $m1, COPY            // the copy loop leaves no trace above an image
    st32 $m15, $m1, $m15, 0
    st32 $m15, $m1, $m15, 1
    st32 $m15, $m1, $m15, 2
    st32 $m15, $m1, $m15, 3
    put $OUTGOING_BASE, $m15
    get $m9, $TILE_ID
    shr $m8, $m9, 6            // row
    setzi $m10, 0              // bit 0 image loaded, bit 1 start seen
    and $m0, $m9, 0x3d
    add $m0, $m0, 0x600
    put $INCOMING_MUX, $m0
    setzi $m11, WORK
    // An owner grants all its tiles at once: two bits a row, 24 + 22 bits.
    setzi $m0, 0xfffff
    or $m0, $m0, 0x00f00000
    st32 $m0, $m11, $m15, W_GRANT
    setzi $m0, 0xfffff
    or $m0, $m0, 0x00300000
    st32 $m0, $m11, $m15, W_GRANT + 1

// A pass: row + 1 pairs of barriers, this row's fetch, the other 23 - row pairs.
pass:
    brnz $m8, abstain
    and $m0, $m9, 2
    brnz $m0, abstain
    sync 3
    sync 13
    bri fetch
abstain:
    mov $m0, $m8
abstain_pair:
    sans 1
    brnzdec $m0, abstain_pair
    sync 1

fetch:
    // Short read of this tile's descriptor, 8 bytes.
    shl $m1, $m9, 15
    setzi $m0, (WORK - BASE) / 32
    or $m1, $m1, $m0
    or $m0, $m15, 0xc0000000
    or $m1, $m1, $m0
    st32 $m1, $m11, $m15, W_HEADER
    shl $m5, $m9, 31
    and $m0, $m9, 63
    shl $m0, $m0, 5
    or $m0, $m0, $m5
    or $m0, $m0, 2
    st32 $m0, $m11, $m15, W_HEADER + 1
    setzi $m0, 2
    put $INCOMING_DCOUNT, $m0
    brnz $m8, ask
    and $m0, $m9, 2
    brnz $m0, ask
    send 1, WORK / 4 + W_GRANT, 3
ask:
    send 1, WORK / 4 + W_HEADER, 3
    sync 0
    ld32 $m4, $m11, $m15, W_DESCRIPTOR
    ld32 $m2, $m11, $m15, W_DESCRIPTOR + 1
    brz $m4, close
    add $m0, $m4, 1
    brnz $m0, load
    brz $m10, bad_descriptor   // start without an image
    or $m10, $m10, 2
close:
    // The same request once more ends the stream.
    or $m0, $m15, STREAM_END
    or $m1, $m1, $m0
    st32 $m1, $m11, $m15, W_HEADER
    setzi $m0, 2
    put $INCOMING_DCOUNT, $m0
    send 1, WORK / 4 + W_HEADER, 3
    sync 0
    bri fetched

load:
    brnz $m10, bad_descriptor  // a second image
    brz $m2, bad_descriptor
    setzi $m0, MAX_FRAMES
    cmpult $m0, $m0, $m2
    brnz $m0, bad_descriptor
    and $m0, $m4, 63
    brnz $m0, bad_descriptor
    shr $m0, $m4, 27           // below 128 MiB
    brnz $m0, bad_descriptor
    shl $m1, $m9, 15           // long read to BASE, then 31 units of 32 bytes on a frame
    or $m0, $m15, 0xe0000000
    or $m1, $m1, $m0
    shr $m4, $m4, 2            // host address in units of 64 bytes, at bit 4; length 1024 is 0
    or $m5, $m5, $m4
    setzi $m3, BASE
    setzi $m4, 0
frame:
    cmpeq $m6, $m2, 1
    brz $m6, not_last
    or $m0, $m15, STREAM_END
    or $m1, $m1, $m0
not_last:
    ld32 $m0, $m3, $m15, 0
    ld32 $m7, $m3, $m15, 1
    st32 $m0, $m11, $m15, W_SAVED
    st32 $m7, $m11, $m15, W_SAVED + 1
    ld32 $m0, $m3, $m15, 2
    ld32 $m7, $m3, $m15, 3
    st32 $m0, $m11, $m15, W_SAVED + 2
    st32 $m7, $m11, $m15, W_SAVED + 3
    st32 $m1, $m11, $m15, W_HEADER
    st32 $m5, $m11, $m15, W_HEADER + 1
    setzi $m0, 256
    put $INCOMING_DCOUNT, $m0
    send 1, WORK / 4 + W_HEADER, 3
    sync 0
    ld32 $m0, $m3, $m15, 1
    shl $m0, $m0, 16
    shr $m0, $m0, 16
    cmpeq $m0, $m0, $m9
    brz $m0, bad_tile
    ld32 $m0, $m3, $m15, 0
    cmpeq $m0, $m0, $m4
    brz $m0, bad_sequence
    ld32 $m0, $m3, $m15, 2
    shl $m7, $m6, 27           // the last frame is flagged
    cmpeq $m0, $m0, $m7
    brz $m0, bad_flags
    ld32 $m0, $m3, $m15, 3
    brnz $m0, bad_reserved
    ld32 $m0, $m11, $m15, W_SAVED
    ld32 $m7, $m11, $m15, W_SAVED + 1
    st32 $m0, $m3, $m15, 0
    st32 $m7, $m3, $m15, 1
    ld32 $m0, $m11, $m15, W_SAVED + 2
    ld32 $m7, $m11, $m15, W_SAVED + 3
    st32 $m0, $m3, $m15, 2
    st32 $m7, $m3, $m15, 3
    add $m3, $m3, FRAME_BYTES
    add $m1, $m1, FRAME_BYTES / 32
    add $m5, $m5, 256
    add $m4, $m4, 1
    add $m2, $m2, -1
    brnz $m2, frame
    st32 $m15, $m3, $m15, 4    // the last trailer lies above the image
    st32 $m15, $m3, $m15, 5
    st32 $m15, $m3, $m15, 6
    st32 $m15, $m3, $m15, 7
    setzi $m10, 1

fetched:
    sub $m0, ROWS - 1, $m8
rest_pair:
    sync 3
    sync 5
    brnzdec $m0, rest_pair
    and $m0, $m10, 2
    brz $m0, pass

    // Start: leave no trace but the 16 bytes below the image.
    mov $m0, $m11
    setzi $m1, W_SAVED + 3
forget:
    st32step $m15, $m15, $m0+=, 1
    brnzdec $m1, forget
    setzi $m1, BASE
    COMPOSE CLEAR_W0
    COMPOSE CLEAR_W1
    COMPOSE CLEAR_W2
    COMPOSE CLEAR_W3
    sync 4
    setzi $m0, 7
    put $EXCHANGE_CTL, $m0
    put $OUTGOING_BASE, $m15
    setzi $m1, RESIDENT
    setzi $m3, RESIDENT_WORDS - 1
    bri BASE

bad_tile:
    setzi $m0, RT_LOADER_BAD_TILE
    bri bad
bad_sequence:
    setzi $m0, RT_LOADER_BAD_SEQUENCE
    bri bad
bad_flags:
    setzi $m0, RT_LOADER_BAD_FLAGS
    bri bad
bad_reserved:
    setzi $m0, RT_LOADER_BAD_RESERVED
    bri bad
bad_descriptor:
    setzi $m0, RT_LOADER_BAD_DESCRIPTOR
bad:
    setzi $m1, 1
    put $EXCHANGE_CTL, $m1
stopped:
    trap 1
    bri stopped

.endif

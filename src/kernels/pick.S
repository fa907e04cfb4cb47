// PICK: out is gathered through a table, an address for each of its units: halves (two of them make
// the word that is stored), words or doublewords. Units are dealt out in runs, one a worker. No
// arithmetic: bits are kept. 6 bundles a word of two halves, 3 a word or doubleword; the table
// alone takes 2 of the 3 memory accesses of a half.
    LAUNCH_ONCE
    ld32 $m0, $m13, $m15, PICK_N
    SPLIT
    brz $m2, done
    ld32 $m6, $m13, $m15, PICK_TABLE
    ld32 $m7, $m13, $m15, PICK_OUT
.if OP == PICK_HALF
    shl $m3, $m1, 3
    shl $m4, $m1, 2
.elseif OP == PICK_WORD
    shl $m3, $m1, 2
    shl $m4, $m1, 2
.else
    shl $m3, $m1, 2
    shl $m4, $m1, 3
.endif
    add $m6, $m6, $m3
    add $m7, $m7, $m4
.if OP == PICK_HALF
.p2align 3
    { rpt $m2, 5 ; fnop }
    { ld32step $m4, $m15, $m6+=, 1 ; fnop }
    { ld32step $m5, $m15, $m6+=, 1 ; fnop }
    { ldz16 $m4, $m4, $m15, 0 ; fnop }
    { ldz16 $m5, $m5, $m15, 0 ; fnop }
    { sort4x16lo $m4, $m4, $m5 ; fnop }
    { st32step $m4, $m15, $m7+=, 1 ; fnop }
.elseif OP == PICK_WORD
.p2align 3
    { rpt $m2, 2 ; fnop }
    { ld32step $m4, $m15, $m6+=, 1 ; fnop }
    { ld32 $m4, $m4, $m15, 0 ; fnop }
    { st32step $m4, $m15, $m7+=, 1 ; fnop }
.else
.p2align 3
    { rpt $m2, 2 ; fnop }
    { ld32step $m4, $m15, $m6+=, 1 ; fnop }
    { ld64 $a0:1, $m4, $m15, 0 ; fnop }
    { st64step $a0:1, $m15, $m7+=, 1 ; fnop }
.endif
done:
    exitz $m15

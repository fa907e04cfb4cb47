// GEMM_F32: out[R][16 P] = x[R][K] . w[K][16 P], all float32 panels, by products of one element of
// x and two of w. Items of a row and two columns are dealt out in turn, a worker every sixth. 4
// bundles a product pair against a roofline of 2 (two loads).
    LAUNCH_ONCE
    ld32 $m8, $m13, $m15, GEMM_F32_ROWS
    ld32 $m9, $m13, $m15, GEMM_F32_INNER
    ld32 $m10, $m13, $m15, GEMM_F32_PANELS
    get $m1, $WSR
    and $m1, $m1, 7                // item in the panel: 8 row + pair
    setzi $m2, 0                   // panel
    shl $m11, $m8, 3               // items of a panel
next:
    cmpult $m3, $m1, $m11
    brnz $m3, item
    sub $m1, $m1, $m11
    add $m2, $m2, 1
    cmpult $m3, $m2, $m10
    brnz $m3, next
    exitz $m15
item:
    shr $m3, $m1, 3                // row
    and $m4, $m1, 7
    shl $m4, $m4, 3                // pair in bytes
    mul $m5, $m2, $m9
    shl $m5, $m5, 6
    add $m5, $m5, $m4
    ld32 $m6, $m13, $m15, GEMM_F32_W
    add $m5, $m5, $m6              // w
    mul $m6, $m2, $m8
    add $m6, $m6, $m3
    shl $m6, $m6, 6
    add $m6, $m6, $m4
    ld32 $m4, $m13, $m15, GEMM_F32_OUT
    add $m6, $m6, $m4              // out
    shl $m3, $m3, 6
    ld32 $m4, $m13, $m15, GEMM_F32_X
    add $m3, $m3, $m4              // x
    or64 $a0:1, $azeros, $azeros
    mov $m7, $m9
inner:
    min $m4, $m7, 16
    sub $m7, $m7, $m4
.p2align 3
    { rpt $m4, 3 ; fnop }
    { ld32step $a2, $m15, $m3+=, 1 ; fnop }
    { ld64step $a4:5, $m15, $m5+=, 8 ; fnop }
    { nop ; f32v2mul $a4:5, $a2:B, $a4:5 }
    { nop ; f32v2add $a0:1, $a0:1, $a4:5 }
    add $m3, $m3, -64
    shl $m4, $m8, 6
    add $m3, $m3, $m4              // next panel of x
    brnz $m7, inner
    st64 $a0:1, $m6, $m15, 0
    add $m1, $m1, 6
    bri next

.worker
.macro body d, s=$a1
  { ld32step \d, $mzero, ptr+=, 1
    f32add $a2, \s, \d }
.endm
.set ptr, $m3
.globl start
start: ldconst ptr, 0x12345678
  ld32 $m0, $mvertex_base, 4
  nop
  rpt $m0, ((2f - 1f) / 8) - 1
1: body $a0
2: brnzdec $m1, 1b
  put $FP_CTL, $a0
  exitz $mzero
.section .data
.half 1.0h, -infh, 3
.float 1.5e3
.long start + N * (4 - 1), . - start

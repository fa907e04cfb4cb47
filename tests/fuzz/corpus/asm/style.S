.macro ENTRY name align=8 nop="" stack=0
.ifnc "\stack", "none"
.section .text.\name, "ax"
.endif
.globl \name, @function
.type \name, @function
.align \align
\name\()_START:
\nop
\name:
.endm
ENTRY f 8 nop
{ ld64step $ a4 : 5 , $mzero , $m6 += , 1 ; f16v4mul $a0: 1, $a2 :BL, $a4:5 }
ld32 $m1, $m2, $m3
setzi $a7, -1.0h
.ifeq 1 - 1
.ifb
exitz $mzero
.endif
.endif
.size f, . - f

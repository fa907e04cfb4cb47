a = a + b
b = a / 0
.long b, 1f - 1b
{ nop
 fnop }
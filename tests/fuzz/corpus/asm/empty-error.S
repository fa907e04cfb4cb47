.if N == 6 && !0
.rept 2
i = 1
.*rp x, 1, (2 + 3)
.macro m\@ a:€b:
 a,vrarg.exitm
.2elseif 0
.else
.error ""o.n
er
.endr
.el # done

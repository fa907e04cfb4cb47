.if N == 3 && !0
.rept 2
i = 1
.irp x, 1, (2 + 3)
.macro m\@ a:req, b:vararg
.long \a, \b
.exitm
.endm
.long \x << 2 ? ~1 : -1 % 3 /* c */
.endr
.endr
.elseif 1
.else
.error "no"
.endif # done

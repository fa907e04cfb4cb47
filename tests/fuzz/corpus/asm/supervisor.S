.supervisor
.p2align 3
sendpicp 42, 0x14021, 1, 0, 0x640, 0x15000
send 1, 2, 3 ; sendoff 64, 5, 1 ; delaypic 1, 0, 0x100
put $OUTGOING_BASE, $m6
call $lr, f
sync 3
f: br $lr
.skip 5, 1
.ascii "a\n\"b"

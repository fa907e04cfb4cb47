// BINARY_F32: out = a op b over 16 n elements of float32, b like a. Pairs are dealt out in runs,
// one a worker, so out may equal a or b.
    LAUNCH_ONCE
    ld32 $m0, $m13, $m15, BINARY_F32_N
    shl $m0, $m0, 3
    SPLIT
    brz $m2, done
    ld32 $m6, $m13, $m15, BINARY_F32_A
    ld32 $m7, $m13, $m15, BINARY_F32_B
    ld32 $m8, $m13, $m15, BINARY_F32_OUT
    shl $m1, $m1, 3
    add $m6, $m6, $m1
    add $m7, $m7, $m1
    add $m8, $m8, $m1
    add $m2, $m2, -1
.p2align 3
loop:
    ld64step $a0:1, $m15, $m6+=, 1
    ld64step $a2:3, $m15, $m7+=, 1
.if OP == BINARY_ADD
    f32v2add $a0:1, $a0:1, $a2:3
.elseif OP == BINARY_SUB
    f32v2sub $a0:1, $a0:1, $a2:3
.elseif OP == BINARY_MUL
    f32v2mul $a0:1, $a0:1, $a2:3
.elseif OP == BINARY_MAX
    f32v2max $a0:1, $a0:1, $a2:3
.elseif OP == BINARY_MIN
    f32v2min $a0:1, $a0:1, $a2:3
.elseif OP == BINARY_RSUB
    f32v2sub $a0:1, $a2:3, $a0:1
.elseif OP == BINARY_DIV
    f32div $a0, $a0, $a2
    f32div $a1, $a1, $a3
.elseif OP == BINARY_RDIV
    f32div $a0, $a2, $a0
    f32div $a1, $a3, $a1
.else
    POW_ONE $a0, $a2
    POW_ONE $a1, $a3
.endif
    st64step $a0:1, $m15, $m8+=, 1
    brnzdec $m2, loop
done:
    exitz $m15

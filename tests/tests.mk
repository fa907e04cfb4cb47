TESTDEPS_sim_fabric := sim
TESTDEPS_sim_chip := sim asm
TESTDEPS_kernels := sim
TESTDEPS_asm_errors := asm
TESTDEPS_device := sim
TESTDEPS_sim_tile := sim
TESTDEPS_runtime := kernels sim

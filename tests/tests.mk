TESTDEPS_sim_fabric := sim
TESTDEPS_sim_chip := sim asm

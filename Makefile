# The only build file. `make help` lists the targets; README.md explains the variants.

VARIANT ?= release
BUILD   ?= build
ifeq ($(origin CC),default)
CC := gcc
endif
-include config.mk

B := $(BUILD)/$(VARIANT)

# Modules in layer order, each with what it links against (tests/arch/arrows.txt checks includes).
MODULES := base target isa proto asm graph kernels reference runtime package profile plan lower \
           place exchange emit compile device sim cache
DEPS_base      :=
DEPS_target    := base
DEPS_isa       := base
DEPS_proto     := base
DEPS_asm       := isa base
DEPS_graph     := base
DEPS_kernels   := asm isa target base
DEPS_reference := graph base
DEPS_runtime   := asm isa target base
DEPS_package   := target isa asm base
DEPS_profile   := package target isa asm base
DEPS_plan      := graph kernels asm isa target base
DEPS_lower     := plan graph kernels asm isa target base
DEPS_place     := lower plan graph kernels runtime asm isa target base
DEPS_exchange  := place lower plan graph kernels runtime asm isa target base
DEPS_emit      := exchange place lower plan graph kernels runtime package asm isa target base
DEPS_compile   := emit exchange place lower plan graph kernels reference runtime package \
                  proto asm isa target base
DEPS_device    := package runtime asm isa target base
DEPS_sim       := device isa target base
DEPS_cache     := package target isa asm base

PROGRAMS := ipud ipud-compile ipuctl ipu-tile-run

PKGS   := libmicrohttpd jansson sqlite3 libsystemd libcurl libcrypto
CFLAGS_common := -std=gnu17 -g -Wall -Wextra -Wshadow -Wmissing-prototypes -Wstrict-prototypes \
                 -Wvla -Wno-unused-parameter -fno-strict-aliasing -D_GNU_SOURCE -pthread \
                 -MMD -MP -Isrc -I. -I$(B)/gen
CFLAGS_src     := -Wconversion -Wno-sign-conversion
CFLAGS_debug   := -O0
CFLAGS_release := -O2 -fstack-protector-strong -D_FORTIFY_SOURCE=2
CFLAGS_asan    := -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined \
                  -fno-omit-frame-pointer
CFLAGS_tsan    := -O1 -fsanitize=thread
CFLAGS_cover   := -O0 --coverage
CFLAGS_fuzz    := -O1 -fsanitize=address,undefined,fuzzer-no-link
LDFLAGS_asan   := -fsanitize=address,undefined
LDFLAGS_tsan   := -fsanitize=thread
LDFLAGS_cover  := --coverage
LDFLAGS_fuzz   := -fsanitize=address,undefined
ifeq ($(VARIANT),fuzz)
CC := clang
endif
CPPFLAGS_pkg   := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS_pkg       := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
CFLAGS_all     := $(CFLAGS_common) $(CFLAGS_$(VARIANT)) $(CPPFLAGS_pkg) $(CFLAGS)
LDFLAGS_all    := -pthread $(LDFLAGS_$(VARIANT)) $(LDFLAGS)

ifneq ($(V),1)
Q := @
say = @printf '  %-7s %s\n' "$(1)" "$(2)";
endif

# Closure of DEPS over a list of modules, highest layer first (link order).
uniq    = $(if $(1),$(firstword $(1)) $(call uniq,$(filter-out $(firstword $(1)),$(1))))
reverse = $(if $(1),$(call reverse,$(wordlist 2,99,$(1))) $(firstword $(1)))
closure = $(call reverse,$(foreach m,$(MODULES),$(if $(filter $m,$(1) $(foreach x,$(1),$(DEPS_$x))),$m)))
libs    = $(foreach m,$(call closure,$(1)),$(B)/lib/$m.a)

.PHONY: all
all: $(PROGRAMS:%=$(B)/%)

# ---- objects --------------------------------------------------------------------------------
# Flags are part of an object's dependencies: the stamp changes when they do.
FLAGS_STAMP := $(B)/flags
$(shell mkdir -p $(B); printf '%s\n' '$(CC) $(CFLAGS_all)' | cmp -s - $(FLAGS_STAMP) || \
        printf '%s\n' '$(CC) $(CFLAGS_all)' > $(FLAGS_STAMP))

# proto lies at the top level, all other modules in src/.
moddir = $(if $(filter proto,$(1)),proto,src/$(1))
MAINS := src/compile/main.c

define module_rules
SRC_$(1) := $$(filter-out $$(MAINS),$$(wildcard $(call moddir,$(1))/*.c))
OBJ_$(1) := $$(SRC_$(1):%.c=$$(B)/%.o)
$$(B)/lib/$(1).a: $$(OBJ_$(1))
	@mkdir -p $$(@D)
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $$^
endef
$(foreach m,$(MODULES),$(eval $(call module_rules,$m)))

$(B)/%.o: %.c $(FLAGS_STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_all) $(if $(filter src/%,$<),$(CFLAGS_src)) $(EXTRA_$(subst /,_,$*)) -c -o $@ $<

$(B)/obj/%.o: %.c $(FLAGS_STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_all) -c -o $@ $<

# Tile code is embedded as text; objects that hold it depend on it.
$(B)/src/kernels/text.o: $(wildcard src/kernels/*.S)
$(B)/src/runtime/text.o: $(wildcard src/runtime/*.S)

# The compiler's identity: digest of all that decides its output (design: part of every key).
COMPILER_SOURCES := $(sort $(foreach m,base isa target asm graph kernels runtime package plan lower \
                    place exchange emit compile,$(wildcard src/$m/*.[chS] src/$m/*.def)))
$(B)/gen/compiler_id.h: $(COMPILER_SOURCES)
	@mkdir -p $(@D)
	$(Q)printf '#define COMPILER_ID "%s"\n' \
	    $$(LC_ALL=C cat $(COMPILER_SOURCES) | sha256sum | cut -c1-64) > $@.tmp
	$(Q)cmp -s $@.tmp $@ 2>/dev/null && rm $@.tmp || mv $@.tmp $@
$(OBJ_compile): | $(B)/gen/compiler_id.h
$(B)/src/compile/key.o: $(B)/gen/compiler_id.h

# ---- programs -------------------------------------------------------------------------------
OBJ_ipud := $(patsubst %.c,$(B)/%.o,$(wildcard daemon/*.c))
OBJ_ipuctl := $(patsubst %.c,$(B)/%.o,$(filter-out client/tile_run.c,$(wildcard client/*.c)))
OBJ_ipud-compile := $(B)/src/compile/main.o
OBJ_ipu-tile-run := $(B)/client/tile_run.o
LIBS_ipud := cache device sim profile package proto
LIBS_ipuctl := proto asm isa
LIBS_ipud-compile := compile
LIBS_ipu-tile-run := sim asm

define program_rules
$$(B)/$(1): $$(OBJ_$(1)) $$(call libs,$$(LIBS_$(1)))
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(LDFLAGS_all) -o $$@ $$(OBJ_$(1)) $$(call libs,$$(LIBS_$(1))) $$(LIBS_pkg) -lm
endef
$(foreach p,$(PROGRAMS),$(eval $(call program_rules,$p)))

# ---- tests ----------------------------------------------------------------------------------
# tests/unit/test_<name>.c links its module and what TESTDEPS_<name> adds.
SUPPORT_OBJ := $(patsubst %.c,$(B)/%.o,$(filter-out tests/support/sim_defaults.c,$(wildcard tests/support/*.c)))
# Stands between tests and sim_device_open(): see the file's head.
SIM_DEFAULTS := $(B)/tests/support/sim_defaults.a
SIM_WRAP := -Wl,--wrap=sim_device_open
$(SIM_DEFAULTS): $(B)/tests/support/sim_defaults.o
	$(Q)rm -f $@ && $(AR) rcs $@ $^
UNIT_TESTS := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/test_*.c))
CHECK_LIBS := $(shell pkg-config --libs check 2>/dev/null)
-include tests/tests.mk
testlibs = $(call libs,$(filter $(MODULES),$(1:test_%=%)) $(TESTDEPS_$(1:test_%=%)))

define unit_rules
$$(B)/tests/unit/$(1): $$(B)/tests/unit/$(1).o $$(TESTOBJ_$(1:test_%=%)) $$(SIM_DEFAULTS) \
                      $$(call testlibs,$(1))
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(LDFLAGS_all) $$(SIM_WRAP) -o $$@ $$^ $$(CHECK_LIBS) $$(LIBS_pkg) -lm
endef
$(foreach t,$(UNIT_TESTS),$(eval $(call unit_rules,$t)))

# tests/vectors: one program over the shared vector files (isa, exchange).
# It is called build/<variant>/tests/vectors, so its objects lie elsewhere.
VECTORS_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/vectors/*.c))
$(B)/tests/vectors: $(VECTORS_OBJ) $(call libs,sim exchange asm)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_all) -o $@ $^ $(LIBS_pkg) -lm

# tests/diff, tests/perf: programs over compiler, device and simulator together.
ALL_LIBS = $(call libs,compile device sim cache profile)
DIFF_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/diff/*.c)) $(SUPPORT_OBJ)
$(B)/tests/diff/diff: $(DIFF_OBJ) $(SIM_DEFAULTS) $(ALL_LIBS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_all) $(SIM_WRAP) -o $@ $^ $(LIBS_pkg) -lm
BENCH_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/perf/*.c)) $(SUPPORT_OBJ)
$(B)/tests/perf/bench: $(BENCH_OBJ) $(ALL_LIBS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_all) -o $@ $^ $(LIBS_pkg) -lm

EXCHANGE_BENCH_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/perf/exchange/*.c))
$(B)/tests/perf/exchange-bench: $(EXCHANGE_BENCH_OBJ) $(ALL_LIBS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_all) -o $@ $^ $(LIBS_pkg) -lm

# tests/calibrate: kernel cycle formulas against the simulated tile.
CALIBRATE_OBJ := $(patsubst %.c,$(B)/%.o,$(wildcard tests/calibrate/*.c))
$(B)/tests/calibrate/calibrate: $(CALIBRATE_OBJ) $(call libs,kernels sim)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_all) -o $@ $^ $(LIBS_pkg) -lm

# Fuzz targets: libFuzzer binaries in the fuzz variant, corpus runners in all others.
FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_DRIVER := $(if $(filter fuzz,$(VARIANT)),,$(B)/tests/fuzz/driver.o)
define fuzz_rules
$$(B)/tests/fuzz/$(1): $$(B)/tests/fuzz/$(1).o $$(FUZZ_DRIVER) $$(ALL_LIBS) $$(FUZZOBJ_$(1:fuzz_%=%))
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(LDFLAGS_all) $$(if $$(filter fuzz,$$(VARIANT)),-fsanitize=fuzzer) -o $$@ $$^ $$(LIBS_pkg) -lm
endef
$(foreach t,$(FUZZ_TARGETS),$(eval $(call fuzz_rules,$t)))

TEST_PROGRAMS := $(UNIT_TESTS:%=$(B)/tests/unit/%) $(B)/tests/vectors \
                 $(B)/tests/diff/diff $(FUZZ_TARGETS:%=$(B)/tests/fuzz/%)
.PHONY: tests bench-program fuzz-programs
tests: all $(TEST_PROGRAMS)
bench-program: all $(B)/tests/perf/bench $(B)/tests/perf/exchange-bench
fuzz-programs: $(FUZZ_TARGETS:%=$(B)/tests/fuzz/%)

# ---- targets for people ---------------------------------------------------------------------
DEB_PACKAGES := gcc make pkg-config libmicrohttpd-dev libjansson-dev libsqlite3-dev libsystemd-dev \
                libcurl4-openssl-dev libssl-dev uthash-dev check python3-sklearn curl
DEB_FUZZ     := clang libclang-rt-14-dev clang-format
FUZZ_SECONDS ?= 60
SUB := $(MAKE) --no-print-directory BUILD=$(BUILD)

.PHONY: deps deps-fuzz run check check-tsan soak bench calibrate fuzz golden install format clean help
# Installs only what is missing; needs root only then.
deps:
	@missing=$$(for p in $(DEB_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
	if [ -n "$$missing" ]; then apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; fi

deps-fuzz:
	@DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(DEB_FUZZ)

run: deps
	@$(SUB) VARIANT=release all
	@tests/models/digits/run.sh $(BUILD)/release

check: deps
	@$(SUB) VARIANT=asan tests
	@$(SUB) VARIANT=tsan tsan-tests
	@tests/check.sh $(BUILD)

.PHONY: tsan-tests
TSAN_TESTS := $(filter test_sim_% test_device test_daemon,$(UNIT_TESTS))
tsan-tests: $(B)/ipud $(B)/ipud-compile $(B)/ipuctl $(TSAN_TESTS:%=$(B)/tests/unit/%)

# Kernel cycle formulas: error of each, and the line that would fit it best.
calibrate: deps
	@$(SUB) VARIANT=release $(BUILD)/release/tests/calibrate/calibrate
	@$(BUILD)/release/tests/calibrate/calibrate

soak: deps
	@$(SUB) VARIANT=release tests
	@tests/soak.sh $(BUILD)/release

bench: deps
	@$(SUB) VARIANT=release all bench-program
	@tests/perf/bench.sh $(BUILD)/release

fuzz: deps deps-fuzz
	@$(SUB) VARIANT=fuzz fuzz-programs
	@tests/fuzz/run.sh $(BUILD)/fuzz $(FUZZ_SECONDS)

golden: deps
	@$(SUB) VARIANT=asan tests
	@UPDATE_GOLDEN=1 $(BUILD)/asan/tests/unit/test_compile && git diff --stat tests/golden

PREFIX ?= /usr
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/systemd/system \
	    $(DESTDIR)$(PREFIX)/lib/sysusers.d $(DESTDIR)$(PREFIX)/lib/tmpfiles.d \
	    $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 0755 $(PROGRAMS:%=$(B)/%) $(DESTDIR)$(PREFIX)/bin
	install -m 0644 systemd/*.service systemd/*.socket $(DESTDIR)$(PREFIX)/lib/systemd/system
	install -m 0644 systemd/ipud.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/ipud.conf
	install -m 0644 systemd/ipud.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/ipud.conf
	install -m 0644 packaging/man/ipuctl.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 0644 packaging/completion/ipuctl.bash \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/ipuctl

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf $(BUILD)

help:
	@echo 'make run      start a daemon on the simulator, classify digits, stop'
	@echo 'make check    all tests under sanitizers (installs what is missing)'
	@echo 'make soak     the large test counts, release build'
	@echo 'make bench    figures and ratios'
	@echo 'make calibrate  kernel cycle formulas against the simulated tile'
	@echo 'make fuzz     FUZZ_SECONDS=60 a target'
	@echo 'make deps | all | golden | install DESTDIR= | format | clean'
	@echo 'variables: VARIANT=release|debug|asan|tsan|cover|fuzz  V=1  BUILD=dir'

-include $(shell find $(B) -name '*.d' 2>/dev/null)

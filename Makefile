# make [all]        programs and library into build/        make demo          three engines share one cache; needs nothing set up
# make check        everything CI runs, basic to complex     make check-one T=test_shm_ring
# make check-asan   tests under ASan, UBSan and LSan         make check-tsan    tests/stress under TSan
# make check-gpu    on a real GPU, if there is one        make bench-gpu     likewise: uploads, kernels, latencies
# make check-header cnre.h as C11 and C++11, every header alone          make check-install DESTDIR tree and a consumer
# make lint         layers, atomics, names, README, man pages            make fuzz [FUZZ_SECONDS=60] [F=fuzz_safetensors]
# make soak [T=60 SOAK='--kill-clients 100']  honest clients, disturbed       make crash [P=point]  death at every step
# make colibri COLIBRI_SRC=DIR  the expert store for Colibri's DeepSeek V4 engine, against that tree's headers
# make bench [B=hitpath]  numbers, never pass or fail        make setup         Debian packages that check needs
# make install | uninstall [DESTDIR= prefix= libdir= …]      make dist | clean | help
# V=1 shows commands, WERROR=1 makes warnings errors, BUILD=DIR builds elsewhere
VERSION = 0.1.0
SOVERSION = 0

ifeq ($(origin CC),default)
CC := gcc
endif
CFLAGS ?= -O2 -g
PKG_CONFIG ?= pkg-config
INSTALL ?= install
BUILD ?= build
prefix ?= /usr
bindir ?= $(prefix)/bin
sbindir ?= $(prefix)/sbin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
mandir ?= $(prefix)/share/man
docdir ?= $(prefix)/share/doc/cnre
colibridir ?= $(prefix)/share/cnre/colibri
sysconfdir ?= /etc
pkgconfigdir ?= $(libdir)/pkgconfig
sysusersdir ?= /usr/lib/sysusers.d
tmpfilesdir ?= /usr/lib/tmpfiles.d
# Units: empty installs them where pkg-config knows systemd (else says so), yes installs them anyway, no does not.
WITH_SYSTEMD ?=
# Asked lazily: on a fresh machine this file is read before pkg-config is there.
unitdir ?= $(or $(shell $(PKG_CONFIG) --variable=systemdsystemunitdir systemd 2>/dev/null),/lib/systemd/system)

out := $(BUILD)
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' $(1) $(2);)

# Sanitizer builds have folders of their own, never derived from BUILD: a BUILD= on the command line would win and mix
# objects. The sub-make names its BUILD on its own command line, which wins over the inherited one.
asan_build := build/asan
tsan_build := build/tsan
crash_build := build/crash
fuzz_build := build/fuzz
asan_flags := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
tsan_flags := -O1 -g -fsanitize=thread
crash_flags := -O2 -g -DCNRE_CRASH_POINTS
fuzz_flags := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

cnre_cflags := -std=c11 -D_GNU_SOURCE -I. -Iclient -fPIC -pthread -Wall -Wextra -Wshadow -Wstrict-prototypes \
	-Wmissing-prototypes -Wvla -MMD -MP -DCNRE_VERSION='"$(VERSION)"'
# The Toolkit's <cuda.h> where it is there; without it gpu/cuda_api.h has declarations of its own.
CUDA_HOME ?= /usr/local/cuda
cnre_cflags += $(if $(wildcard $(CUDA_HOME)/include/cuda.h),-isystem $(CUDA_HOME)/include)

# ---- sources, by folder ----
base_sources := check.c crash.c size.c log.c message.c file.c disk.c fingerprint.c payload.c places.c probe.c
gpu_sources := cuda.c uuid.c token.c device.c device_select.c device_thread.c device_memory.c device_upload.c import.c point.c
shm_sources := futex.c ring.c access_log.c kv_index.c kv_channel.c segment.c numa.c packet.c wire.c counters.c
policy_sources := policy.c lru.c record.c lru_pin.c frequency.c lfu.c lfru.c slru.c tinylfu.c victims.c cost.c felt.c curve.c tuner.c allocate.c moves.c tier.c
kvstore_sources := key.c block.c check.c checker_plain.c checker_avx2.c prefix_file.c value.c disk.c disk_turn.c disk_folders.c disk_task.c disk_write.c disk_read.c disk_scan.c disk_plain.c disk_uring.c fanout.c leftover.c coli_kv.c
model_sources := text.c order.c safetensors.c config.c encoding.c family.c family_file.c extents.c found.c cut.c glm.c glm53.c kimi_k3.c inkling.c \
	olmoe.c qwen36.c qwen38.c deepseek_v4.c mimo.c objects.c catalog.c plan.c view.c view_rows16.c usage.c usage_binary.c use_list.c engine_name.c
manager_sources := main.c settings.c budget.c budget_inputs.c extent.c pool.c pool_memory.c pool_guarantee.c pool_budget.c file.c loader.c loader_uring.c loader_pool.c \
	directory.c feed.c history.c recorder.c control_trace.c report_layers.c residency.c object.c evict.c load.c pump.c adopt_objects.c queue.c session.c channel.c conversation.c control.c survey.c report.c match.c reservation.c peer.c use_file.c use_import.c warm.c colibri_env.c control_model.c control_usage.c control_warm.c report_warm.c report_settings.c client_policy.c load_parts.c load_late.c load_log.c report_experts.c report_why.c \
	socket_path.c bell.c bell_thread.c listener.c loop.c worker.c stall.c digest.c scrub.c state.c adopt.c fence.c persist.c store.c kept.c keep_wire.c keeper.c guard.c watchdog.c path.c check.c measure.c pressure.c pressure_watch.c mirror.c mirror_check.c mirror_report.c mirror_sample.c source.c prepare.c views.c serve.c replica.c health.c drive.c drive_speed.c drive_probe.c report_drives.c metrics.c metrics_address.c metrics_clients.c metrics_collect.c metrics_server.c metrics_text.c direct.c drive_reach.c histogram.c layer_count.c \
	kv_store.c kv_settings.c kv_namespace.c kv_access.c kv_session.c kv_entry.c kv_memory.c kv_share.c kv_evict.c kv_publish.c kv_load.c kv_files.c kv_uses.c kv_adopt.c kv_transfer.c kv_report.c control_kv.c control_reply.c probe.c \
	vram.c vram_settings.c vram_device.c vram_arena.c vram_table.c vram_session.c vram_trust.c vram_place.c vram_evict.c vram_report.c vram_check.c control_vram.c
client_sources := attach.c options.c endpoint.c session.c connection.c ask.c autostart.c map.c fork.c lease.c view.c request.c access.c wait.c \
	acquire.c admission.c batch.c prefetch.c policy.c stats.c kv_open.c kv_space.c kv_map.c kv_find.c kv_pin.c kv_run.c kv_chain.c kv_post.c \
	kv_staging.c kv_match.c kv_block.c kv_stage.c kv_commit.c kv_route.c kv_invalidate.c \
	vram.c vram_table.c vram_map.c vram_arena.c vram_lease.c vram_acquire.c vram_point.c
ctl_sources := main.c options.c run.c search.c connection.c answer.c fields.c format.c verb.c status.c stats.c clients.c \
	layers.c place.c experts.c why.c why_words.c explain.c explain_sample.c explain_verdict.c explain_vram.c top.c top_rates.c inspect.c inspect_words.c inspect_model.c kv.c kv_words.c kv_convert.c set.c policy.c reset.c trace.c usage.c warm.c drives.c \
	iobench.c iobench_words.c iobench_file.c iobench_trial.c iobench_verdict.c iobench_sweep.c iobench_report.c
top_sources := main.c options.c ui.c grid.c picture.c picture_vram.c map.c draw.c record.c source.c screen.c
# cnre-inspect wants clang for what runs in the kernel, bpftool for its skeleton, libbpf and libelf. Without one of them it is
# left out, and the build says so; WITH_INSPECT=yes fails instead, no leaves it out silently.
WITH_INSPECT ?=
CLANG ?= clang
BPFTOOL ?= $(firstword $(shell command -v bpftool 2>/dev/null) $(wildcard /usr/sbin/bpftool /sbin/bpftool))
inspect_lacks = $(strip $(if $(shell command -v $(CLANG) 2>/dev/null),,clang) $(if $(BPFTOOL),,bpftool) \
	$(if $(wildcard $(addsuffix /bpf/usdt.bpf.h,/usr/include /usr/local/include)),,libbpf-dev) $(if $(wildcard $(addsuffix /gelf.h,/usr/include /usr/local/include)),,libelf-dev))
have_inspect := $(if $(WITH_INSPECT),$(filter yes,$(WITH_INSPECT)),$(if $(inspect_lacks),,yes))
inspect_sources := main.c options.c inspect.c watch.c library.c subject.c socket_of.c counters.c preflight.c extent_map.c range_map.c file_extents.c checkpoint.c \
	known_files.c load_table.c load_events.c tally.c histogram.c causes.c io.c io_open.c io_report.c io_print.c waits.c waits_report.c loads.c loads_print.c leases.c symbols.c \
	$(if $(have_inspect),programs.c elf_file.c)
route_sources := main.c options.c request.c homes.c engines.c attach.c store.c
standin_sources := fake_kv_store.c
gen_sources := main.c options.c model.c format.c family.c olmoe.c glm.c glm53.c kimi_k3.c inkling.c qwen36.c qwen38.c \
	deepseek_v4.c mimo.c random.c structure.c tensor.c expert.c payload.c fill.c layout.c config.c stamp.c checkpoint.c
sim_sources := \
	arm.c \
	belady.c \
	convert.c \
	counts.c \
	file.c \
	gate.c \
	generate.c \
	generate_options.c \
	jobs.c \
	main.c \
	manifest.c \
	options.c \
	paths.c \
	plot.c \
	prior.c \
	progress.c \
	read_binary.c \
	read_csv.c \
	read_group.c \
	read_replay.c \
	read_route.c \
	replay.c \
	report.c \
	residents.c \
	run.c \
	sample.c \
	say.c \
	scratch.c \
	shuffle.c \
	study.c \
	sweep.c \
	synthetic.c \
	trace.c \
	trace_format.c \
	trace_geometry.c \
	trace_input.c \
	trace_rows.c \
	trace_store.c \
	trace_write.c \
	train.c \
	verdict.c \
	vram.c
engine_sources := main.c options.c tokens.c message.c config.c places.c shard.c weights.c kernel.c kernel_plain.c kernel_avx2.c \
	kernel_avx512.c quantised.c pool.c matmul.c vector.c attention.c router.c expert.c expert_table.c forward.c lru.c \
	reader.c cache_private.c cache_mmap.c attach.c cache_cnre.c kv_rows.c kv_identity.c kv_prefix.c \
	conversation.c conversations.c lines.c request.c answer.c advice.c server.c serve.c engine.c stop.c report.c

# The kernels promise the same bits whatever the CPU: no multiplication and addition may be fused behind their back. The plain
# ones are written for the vectors that a compiler makes.
kernel_plain_cflags := -ffp-contract=off -O3
kernel_avx2_cflags := -ffp-contract=off
kernel_avx512_cflags := -ffp-contract=off
# Likewise a policy decides the same in the manager and in the simulator. Loops over a layer's objects are worth vectors.
cost_cflags := -ffp-contract=off -O3
curve_cflags := -O3

# Its source is that of the store itself, with the tests' headers in place of Colibri's.
stress_colibri_store_cflags := -Itests/support/colibri

# So does the generator of traces, whose files are pinned.
sample_cflags := -ffp-contract=off
synthetic_cflags := -ffp-contract=off

objects = $(patsubst %.c,$(out)/obj/$(1)/%.o,$($(2)_sources))
base_objects := $(call objects,base,base)
shm_objects := $(call objects,shm,shm)
gpu_objects := $(call objects,gpu,gpu)
policy_objects := $(call objects,policy,policy)
kvstore_objects := $(call objects,kvstore,kvstore)
model_objects := $(call objects,model,model)
manager_objects := $(call objects,manager,manager)
client_objects := $(call objects,client,client)
ctl_objects := $(call objects,tools/ctl,ctl)
gen_objects := $(call objects,tools/gen,gen)
route_objects := $(call objects,tools/route,route)
top_objects := $(call objects,tools/top,top)
colibri_sources := provider.c format.c
colibri_files := $(addprefix client/colibri/,provider.h $(colibri_sources) expert_store.c)
colibri_objects := $(call objects,client/colibri,colibri)
# A store of prefixes in a test's own memory. Beside tests/support/, since it has the names of libcnre.
standin_objects := $(call objects,tests/standin,standin)
inspect_objects := $(call objects,tools/inspect,inspect)
sim_objects := $(call objects,tools/sim,sim)
engine_objects := $(call objects,engine,engine)

programs := $(addprefix $(out)/,cnre-managerd cnrectl cnre-top cnre-gen cnre-sim cnre-olmoe cnre-route $(if $(have_inspect),cnre-inspect))
library := $(out)/libcnre.so.$(VERSION)

all: $(programs) $(library) $(out)/cnre-counters.7 $(if $(have_inspect)$(WITH_INSPECT),,without-inspect)
without-inspect:
	@echo 'cnre-inspect is left out: $(inspect_lacks) missing'

# Changes when the compiler or its flags do, so that no object of other flags is linked in. -Werror changes no object.
compile = $(CC) $(CPPFLAGS) $(CFLAGS) $(cnre_cflags)
$(out)/flags: FORCE
	@mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(compile))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(compile))' >$@

$(out)/obj/%.o: %.c $(out)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(compile) $(if $(WERROR),-Werror) $($(notdir $*)_cflags) -c -o $@ $<

# What runs in the kernel is compiled against headers of its own, not against the kernel of this machine.
bpf_arch := $(patsubst aarch64,arm64,$(patsubst x86_64,x86,$(shell uname -m)))
bpf_include := $(wildcard $(addsuffix -linux-gnu,/usr/include/$(shell uname -m)))
$(out)/gen/inspect.bpf.o: tools/inspect/inspect.bpf.c tools/inspect/kernel.h tools/inspect/event.h
	@mkdir -p $(@D)
	$(call say,BPF,$<)$(CLANG) -g -O2 -Wall $(if $(WERROR),-Werror) -target bpf -D__TARGET_ARCH_$(bpf_arch) -I. $(addprefix -I,$(bpf_include)) -c -o $@ $<
$(out)/gen/inspect.skel.h: $(out)/gen/inspect.bpf.o
	$(call say,SKEL,$@)$(BPFTOOL) gen skeleton $< name inspect_bpf >$@.new && mv $@.new $@
$(out)/obj/tools/inspect/programs.o: $(out)/gen/inspect.skel.h
programs_cflags := -I$(out)/gen

# One archive a folder: a program or test names the folders it may use. main.o stays out: a test has its own main.
define archive
$(out)/lib$(1).a: $(filter-out %/main.o,$($(1)_objects))
	$$(call say,AR,$$@)rm -f $$@; ar rcs $$@ $$^
endef
$(foreach f,base shm policy model gpu kvstore manager client colibri engine ctl top route inspect sim gen standin,$(eval $(call archive,$(f))))

archives = $(foreach f,$(1),$(out)/lib$(f).a)
manager_libs := -luring -ljansson -linih -lcrypto -lm
client_libs := -lcrypto
inspect_libs := -lbpf -lelf -lz

$(out)/cnre-managerd: $(manager_objects) $(call archives,model policy gpu kvstore shm base)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ $(manager_libs)

# Of gpu/ it takes what it imports with, and nothing of the manager's side.
$(library): $(client_objects) $(call archives,gpu kvstore shm base) client/libcnre.map
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -shared -Wl,-soname,libcnre.so.$(SOVERSION) \
		-Wl,--version-script,client/libcnre.map -Wl,-z,defs -Wl,--no-undefined-version -o $@ \
		$(client_objects) $(call archives,gpu kvstore shm base) $(client_libs)
	@ln -sf $(notdir $@) $(out)/libcnre.so.$(SOVERSION); ln -sf libcnre.so.$(SOVERSION) $(out)/libcnre.so

$(out)/cnrectl: $(ctl_objects) $(call archives,model kvstore shm base)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ -ljansson -linih -lcrypto

# It finds and asks a manager as cnrectl does.
$(out)/cnre-top: $(top_objects) $(call archives,ctl shm base)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ -ljansson -lncurses -ltinfo -lm

$(out)/cnre-inspect: $(inspect_objects) $(call archives,ctl model kvstore shm base)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ -ljansson -linih -lcrypto $(inspect_libs)

$(out)/cnre-gen: $(gen_objects) $(call archives,base)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ -ljansson -lcrypto -lm

$(out)/cnre-sim: $(sim_objects) $(call archives,policy model base)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ -ljansson -linih -lcrypto -lm

$(out)/cnre-olmoe: $(engine_objects) $(library)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $(engine_objects) -L$(out) -lcnre -Wl,-rpath,'$$ORIGIN' -ljansson -lm

$(out)/cnre-route: $(route_objects) $(library)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $(route_objects) -L$(out) -lcnre -Wl,-rpath,'$$ORIGIN' -ljansson

# ---- for Colibri's DeepSeek V4 engine: one object to link with its own, compiled against the user's tree ----
colibri_include = $(firstword $(patsubst %/expert_store.h,%,$(wildcard $(COLIBRI_SRC)/c/expert_store.h $(COLIBRI_SRC)/expert_store.h)))
COLIBRI_CFLAGS ?= -include pthread.h
colibri: $(out)/colibri/cnre_expert_store.o
$(out)/colibri/cnre_expert_store.o: client/colibri/expert_store.c client/colibri/provider.h $(colibri_objects) FORCE
	@test -n '$(colibri_include)' || { echo 'make colibri: no expert_store.h in "$(COLIBRI_SRC)": set COLIBRI_SRC to the tree of Colibri that the engine is built from' >&2; exit 1; }
	@test -e '$(colibri_include)/expert_store_registry.h' || { echo 'make colibri: $(colibri_include) has no expert_store_registry.h: this needs a Colibri whose DeepSeek V4 engine chooses its store with COLI_EXPERT_STORE (after v1.6.2)' >&2; exit 1; }
	@mkdir -p $(@D)
	$(call say,CC,$@)$(filter-out -MMD -MP -Wshadow,$(compile)) -I$(colibri_include) $(COLIBRI_CFLAGS) -c -o $(out)/colibri/expert_store.o $<
	$(Q)$(LD) -r -o $@ $(out)/colibri/expert_store.o $(colibri_objects)
	@echo '$@: link it with the objects of deepseek-v4-objs and with $(patsubst %/,%,$(dir $(library)))/libcnre.so (-lcnre)'

# As they are installed: without the path of the build, since beside an installed program no library lies.
users := cnre-olmoe cnre-route
for_root := cnre-managerd cnre-inspect
$(out)/install/cnre-olmoe: $(engine_objects)
$(out)/install/cnre-route: $(route_objects)
$(addprefix $(out)/install/,$(users)): $(library)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^) -L$(out) -lcnre -ljansson -lm

# ---- tests: tests/test_<folder>_<file>.c links the archives of its folder and below ----
test_archives_base := base
test_archives_shm := shm base
test_archives_policy := policy base
test_archives_model := model base
test_archives_gpu := gpu base
test_archives_kvstore := kvstore base
test_archives_manager := manager model policy gpu kvstore shm base
test_archives_client := client gpu kvstore shm base
test_archives_engine := engine standin client gpu kvstore shm base
test_archives_system := client manager policy gpu kvstore shm base
test_archives_colibri := colibri client gpu kvstore shm base
test_archives_ctl := ctl model kvstore shm base
test_archives_top := top ctl kvstore shm base
test_archives_inspect := inspect ctl model kvstore shm base
test_libs_inspect := $(if $(have_inspect),$(inspect_libs))
test_archives_route := route standin client gpu kvstore shm base
test_archives_sim := sim policy model base
test_archives_gen := gen base
test_archives_fakecuda :=
test_libs := -lcriterion -luring -ljansson -linih -lcrypto -lm

tests := $(filter-out $(if $(have_inspect),,test_inspect_elf_file),$(notdir $(basename $(wildcard tests/test_*.c))))
test_programs := $(addprefix $(out)/tests/,$(tests))
# An archive, so that a test links what it uses of tests/support/ and not what the others need for it.
support := $(out)/tests/libsupport.a
$(support): $(patsubst tests/support/%.c,$(out)/obj/tests/support/%.o,$(wildcard tests/support/*.c))
	@mkdir -p $(@D); rm -f $@
	$(call say,AR,$@)ar rcs $@ $^

# The expert store, as it would be compiled against Colibri's own headers, which tests/support/colibri/ stands in for.
colibri_standin := $(out)/tests/colibri/expert_store.o
$(colibri_standin): client/colibri/expert_store.c client/colibri/provider.h client/cnre/cnre.h $(wildcard tests/support/colibri/*.h) $(out)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)$(compile) $(if $(WERROR),-Werror) -Itests/support/colibri -c -o $@ $<
test_objects_test_colibri_store := $(colibri_standin)
test_objects_test_colibri_lanes := $(colibri_standin)

# What a client imports with, without a driver. An object and in no archive, since it has the names of gpu/.
import_standin := $(out)/obj/tests/standin/fake_import.o
$(foreach t,test_client_hot test_client_vram test_client_vram_death test_client_vram_point,$(eval test_objects_$(t) := $(import_standin)))
$(out)/stress/stress_vram: $(import_standin)

# A CUDA driver of our own, for tests only: tests/standin/fakecuda/README.md.
fakecuda := $(out)/tests/fakecuda/libcuda.so.1
$(fakecuda): $(patsubst %.c,$(out)/obj/%.o,$(wildcard tests/standin/fakecuda/*.c)) tests/standin/fakecuda/libcuda.map
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -shared -Wl,-soname,libcuda.so.1 -Wl,--version-script,tests/standin/fakecuda/libcuda.map \
		-o $@ $(filter %.o,$^)

# And one that is too old to have anything.
oldcuda := $(out)/tests/oldcuda/libcuda.so.1
$(oldcuda): $(out)/obj/tests/standin/oldcuda/entry.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libcuda.so.1 -o $@ $^

# Checks and measurements with whatever driver there is; make check runs the checks with the stand-in. Kernels where nvcc is: the
# text that drivers of CUDA 11 and newer compile themselves, since no kernel here needs a newer one.
NVCC ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
gpu_kernels := $(if $(NVCC),$(out)/tests/gpu/matvec.ptx)
gpu_programs := $(out)/tests/gpu/check-gpu $(out)/tests/gpu/bench-gpu
$(out)/tests/gpu/matvec.ptx: tests/gpu/matvec.cu
	@mkdir -p $(@D)
	$(call say,NVCC,$@)$(NVCC) -ptx -arch=compute_75 -o $@.new $< && sed 's/^\.version .*/.version 7.0/' $@.new >$@; rm -f $@.new; test -s $@
$(gpu_programs): $(out)/tests/gpu/%-gpu: $(out)/obj/tests/gpu/%_gpu.o $(patsubst %,$(out)/obj/tests/gpu/%.o,engine matvec) \
		$(support) $(call archives,gpu base) | $(gpu_kernels)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ -lm

folder_of = $(word 2,$(subst _, ,$(1)))
define test_rule
$(out)/tests/$(1): $(out)/obj/tests/$(1).o $(test_objects_$(1)) $(support) $(call archives,$(test_archives_$(call folder_of,$(1))))
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)$$(CC) $$(CFLAGS) $$(LDFLAGS) -pthread -o $$@ $$^ $$(test_libs) $(test_libs_$(call folder_of,$(1)))
endef
$(foreach t,$(tests),$(eval $(call test_rule,$(t))))
$(test_programs): | $(fakecuda) $(oldcuda)

# One test program by name: make check-one T=test_shm_ring
check-one: $(out)/tests/$(T)
	CNRE_CHECK=1 $<

tests: $(test_programs) $(out)/soak $(fakecuda) $(out)/probes-client $(oldcuda) $(gpu_programs)

# ---- stress programs (plain main, for TSan) and fuzzers link whatever they use of every folder ----
stress_programs := $(patsubst tests/stress/%.c,$(out)/stress/%,$(wildcard tests/stress/stress_*.c))
fuzz_programs := $(filter-out $(if $(have_inspect),,$(out)/fuzz/fuzz_elf_file),$(patsubst tests/fuzz/%.c,$(out)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c)))
every_archive := $(call archives,colibri client manager sim model policy gpu kvstore shm base)

$(out)/stress/%: $(out)/obj/tests/stress/%.o $(support) $(every_archive)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^) $(filter %.a,$^) $(filter-out -lcriterion,$(test_libs))

# Its maps have names that are the manager's, too.
$(out)/fuzz/fuzz_elf_file: $(out)/obj/tests/fuzz/fuzz_elf_file.o $(call archives,inspect base)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer -pthread -o $@ $^ $(test_libs_inspect)

$(out)/fuzz/%: $(out)/obj/tests/fuzz/%.o $(every_archive)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer -pthread -o $@ $^ $(filter-out -lcriterion,$(test_libs))

# A client of tests/system/probes.sh; it uses the library as an engine does.
$(out)/probes-client: $(out)/obj/tests/system/probes_client.o $(library)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $< -L$(out) -lcnre -Wl,-rpath,'$$ORIGIN'

# ---- nothing is lost: a soak of a real manager, and death at every crash point (base/crash.h) ----
soak_objects := $(patsubst %.c,$(out)/obj/%.o,$(wildcard tests/soak/*.c))
crash_objects := $(patsubst %.c,$(out)/obj/%.o,$(wildcard tests/crash/*.c))
$(out)/soak: $(soak_objects)
$(out)/crash-points: $(crash_objects)
$(out)/soak $(out)/crash-points: $(support) $(call archives,client gpu kvstore shm base)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^) $(filter %.a,$^) -ljansson -lcrypto

soak: all $(out)/soak
	CNRE_BUILD=$(out) $(out)/soak --seconds $(or $(T),60) --json $(out)/soak.json $(SOAK)

# Every point that the sources name, so that none is forgotten; the variant of the build knows them, no other does.
$(out)/crash-points.list: FORCE
	@mkdir -p $(@D); grep -roE --include='*.[ch]' 'CNRE_CRASH_POINT\("[a-z0-9-]+"\)' base shm kvstore client manager | \
		sed -E 's/^([^:]*):CNRE_CRASH_POINT\("(.*)"\)/\2 \1/' | sort >$@
crash-programs: all $(out)/crash-points $(out)/crash-points.list
crash:
	+$(Q)$(MAKE) --no-print-directory BUILD=$(crash_build) CFLAGS='$(crash_flags)' crash-programs
	CNRE_BUILD=$(crash_build) $(crash_build)/crash-points $(crash_build)/crash-points.list $(P)

stress: $(stress_programs)
fuzzers: $(fuzz_programs)
build-asan:
	+$(Q)$(MAKE) BUILD=$(asan_build) CFLAGS='$(asan_flags)' all tests
build-tsan:
	+$(Q)$(MAKE) BUILD=$(tsan_build) CFLAGS='$(tsan_flags)' stress
build-fuzz:
	+$(Q)$(MAKE) BUILD=$(fuzz_build) CC=clang CFLAGS='$(fuzz_flags)' fuzzers

# ---- checks; tests/run.sh holds their order, prints a line each and the closing count ----
run_tests = +@MAKE='$(MAKE)' BUILD='$(BUILD)' tests/run.sh
FUZZ_SECONDS ?= 60

check: setup
	$(run_tests) check
check-asan:
	+@MAKE='$(MAKE)' BUILD=$(asan_build) tests/run.sh asan
check-tsan:
	+@MAKE='$(MAKE)' BUILD=$(tsan_build) tests/run.sh tsan
fuzz:
	+@MAKE='$(MAKE)' BUILD=$(fuzz_build) FUZZ_SECONDS='$(FUZZ_SECONDS)' tests/run.sh fuzz $(F)
check-gpu bench-gpu: %-gpu: all $(out)/tests/gpu/%-gpu
	@BUILD='$(BUILD)' tests/gpu/run.sh $* || [ $$? = 77 ]
lint: all
	@BUILD='$(BUILD)' tests/lint/run.sh
check-header:
	@CC='$(CC)' tests/check-header.sh
check-install: all
	+@MAKE='$(MAKE)' BUILD='$(BUILD)' CC='$(CC)' PKG_CONFIG='$(PKG_CONFIG)' VERSION='$(VERSION)' SOVERSION='$(SOVERSION)' tests/check-install.sh
setup:
	@tests/setup.sh check
setup-build setup-demo:
	@tests/setup.sh $(@:setup-%=%)

# The sub-make begins after setup, so that its pkg-config calls find what setup installed.
demo: setup-demo
	+@$(MAKE) --no-print-directory all
	@BUILD='$(BUILD)' tools/demo/demo.sh

# The loader without the rest of the manager; tests/bench/loader.sh builds and runs it.
bench-loader-bin: $(out)/bench-bin/bench_loader
$(out)/bench-bin/bench_loader: $(out)/obj/tests/bench/bench_loader.o $(call archives,base) \
		$(addprefix $(out)/obj/manager/,file.o loader.o loader_uring.o loader_pool.o)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^) $(filter %.a,$^) -luring

# Files of prefixes without the manager; tests/bench/kv_disk.sh builds and runs it.
$(out)/bench-bin/bench_kv_disk: $(out)/obj/tests/bench/bench_kv_disk.o $(call archives,kvstore base)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ -luring -lcrypto

# Replays, without the rest of cnre-sim; tests/bench/sim.sh builds and runs it.
bench-sim-bin: $(out)/bench-bin/bench_sim
$(out)/bench-bin/bench_sim: $(out)/obj/tests/bench/bench_sim.o $(call archives,sim policy model base)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ -ljansson -linih -lcrypto -lm

# Kernels and the step of preparing, without the rest of engine and manager; tests/bench/view.sh builds and runs it.
$(out)/bench-bin/bench_view: $(out)/obj/tests/bench/bench_view.o $(call archives,engine model base)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ -ljansson -linih -lcrypto -lm

# What a client sees: these use the library as an engine does, and the folders beside it for what to compare with.
client_benches := $(patsubst %,$(out)/bench-bin/bench_%,coldmiss hitpath restart death kv drives vram)
$(client_benches): $(out)/bench-bin/%: $(out)/obj/tests/bench/%.o $(library) $(call archives,model base)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $< -L$(out) -lcnre -Wl,-rpath,'$$ORIGIN/..' \
		$(call archives,model base) -ljansson -linih -lcrypto -lm

# Engines that follow a routing trace, which the simulator's reader reads.
$(out)/bench-bin/bench_policy: $(out)/obj/tests/bench/bench_policy.o $(library) $(call archives,sim policy model base)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $< -L$(out) -lcnre -Wl,-rpath,'$$ORIGIN/..' \
		$(call archives,sim policy model base) -ljansson -linih -lcrypto -lm

B ?= hitpath loader coldmiss resident sharing
bench: all
	@for name in $(B); do printf '== %s\n' $$name; BUILD='$(BUILD)' tests/bench/$$name.sh || exit 1; done

# ---- documents ----
$(out)/cnre-counters.7: doc/counters.awk shm/counters.def doc/counters.families
	@mkdir -p $(@D)
	$(call say,MAN,$@)awk -f doc/counters.awk shm/counters.def doc/counters.families >$@.new && mv $@.new $@

# ---- install: writes below DESTDIR only; needs no root, runs no ldconfig and no systemctl ----
man_pages := $(wildcard doc/man/*.[1-8])
man_page_at = $(mandir)/man$(subst .,,$(suffix $(1)))/$(notdir $(1))
# They lie in one folder there, so links between them lose theirs.
documents := README.md LICENSE $(addprefix doc/,design.md shared-memory.md protocol.md families.md cnre-top.txt failures.md measured.md integrating.md family.ini) \
	$(addprefix doc/experiments/,policies.md policy-end-to-end.md) systemd/managerd.conf systemd/hugepages.conf
unfolder := sed -E 's@\]\((doc/experiments|experiments|doc|\.\.)/@](@g'
installed_man := $(foreach m,$(man_pages) cnre-counters.7,$(call man_page_at,$(m)))
have_systemd = $(if $(WITH_SYSTEMD),$(filter yes,$(WITH_SYSTEMD)),$(shell $(PKG_CONFIG) --exists systemd 2>/dev/null && echo yes))
substitute = sed -e 's|@VERSION@|$(VERSION)|g' -e 's|@prefix@|$(prefix)|g' -e 's|@libdir@|$(libdir)|g' \
	-e 's|@includedir@|$(includedir)|g' -e 's|@sbindir@|$(sbindir)|g' -e 's|@sysconfdir@|$(sysconfdir)|g'
examples := tools/grafana/cnre-dashboard.json tools/prometheus/cnre-alerts.yml
at = $(DESTDIR)$(1)

# What names a directory is made here and not at build time: the prefix may be another one by then.
install: all $(addprefix $(out)/install/,$(users)) client/cnre.pc.in
	$(Q)$(INSTALL) -d -m 0755 $(call at,$(bindir)) $(call at,$(sbindir)) $(call at,$(libdir)) $(call at,$(pkgconfigdir)) \
		$(call at,$(includedir)/cnre) $(call at,$(docdir)/examples) $(call at,$(colibridir)) $(sort $(dir $(addprefix $(DESTDIR),$(installed_man))))
	$(Q)$(INSTALL) -m 0755 $(filter $(addprefix %/,$(for_root)),$(programs)) $(call at,$(sbindir))/
	$(Q)$(INSTALL) -m 0755 $(filter-out $(addprefix %/,$(for_root) $(users)),$(programs)) $(addprefix $(out)/install/,$(users)) $(call at,$(bindir))/
	$(Q)$(INSTALL) -m 0644 $(library) $(call at,$(libdir))/
	$(Q)ln -sf $(notdir $(library)) $(call at,$(libdir))/libcnre.so.$(SOVERSION)
	$(Q)ln -sf libcnre.so.$(SOVERSION) $(call at,$(libdir))/libcnre.so
	$(Q)$(INSTALL) -m 0644 client/cnre/cnre.h $(call at,$(includedir))/cnre/
	$(Q)$(foreach f,$(colibri_files),sed 's|"client/colibri/|"|' $(f) | $(INSTALL) -m 0644 /dev/stdin $(call at,$(colibridir))/$(notdir $(f)) &&) true
	$(Q)$(substitute) client/cnre.pc.in | $(INSTALL) -m 0644 /dev/stdin $(call at,$(pkgconfigdir)/cnre.pc)
	$(Q)$(foreach m,$(man_pages) $(out)/cnre-counters.7,$(INSTALL) -m 0644 $(m) $(call at,$(call man_page_at,$(m))) &&) true
	$(Q)$(foreach d,$(documents),$(unfolder) $(d) | $(INSTALL) -m 0644 /dev/stdin $(call at,$(docdir))/$(notdir $(d)) &&) true
	$(Q)$(INSTALL) -m 0644 $(examples) $(call at,$(docdir)/examples)/
	$(Q)$(if $(have_systemd),$(MAKE) --no-print-directory install-units,echo 'no units installed: systemd not found by pkg-config (WITH_SYSTEMD=yes installs them anyway)')

# Units are written once and installed twice: for the one manager of most machines, and as templates for more.
units := $(foreach kind,service socket,cnre-managerd.$(kind) cnre-managerd@.$(kind))
single := -e 's|@unit@|cnre-managerd|g' -e 's|@name@|managerd|g' -e 's|@state@|cnre|g'
template := -e 's|@unit@|cnre-managerd@%i|g' -e 's|@name@|%i|g' -e 's|@state@|cnre/%i|g'
install-units: systemd/cnre-managerd.service.in systemd/cnre-managerd.socket.in systemd/cnre.slice
	$(Q)$(INSTALL) -d -m 0755 $(call at,$(unitdir)) $(call at,$(sysusersdir)) $(call at,$(tmpfilesdir))
	$(Q)$(foreach u,$(units),$(substitute) $(if $(findstring @,$(u)),$(template),$(single)) systemd/$(subst @,,$(u)).in | \
		$(INSTALL) -m 0644 /dev/stdin $(call at,$(unitdir))/$(u) &&) true
	$(Q)$(INSTALL) -m 0644 systemd/cnre.slice $(call at,$(unitdir))/
	$(Q)$(INSTALL) -m 0644 systemd/cnre.sysusers $(call at,$(sysusersdir))/cnre.conf
	$(Q)$(INSTALL) -m 0644 systemd/cnre.tmpfiles $(call at,$(tmpfilesdir))/cnre.conf

uninstall:
	rm -f $(addprefix $(call at,$(sbindir))/,$(for_root)) $(addprefix $(call at,$(bindir))/,$(notdir $(filter-out $(addprefix %/,$(for_root)),$(programs)))) \
		$(addprefix $(call at,$(libdir))/,$(notdir $(library)) libcnre.so.$(SOVERSION) libcnre.so) \
		$(call at,$(includedir))/cnre/cnre.h $(call at,$(pkgconfigdir))/cnre.pc $(addprefix $(DESTDIR),$(installed_man)) \
		$(addprefix $(call at,$(docdir))/,$(notdir $(documents)) $(addprefix examples/,$(notdir $(examples)))) \
		$(addprefix $(call at,$(colibridir))/,$(notdir $(colibri_files))) \
		$(addprefix $(call at,$(unitdir))/,$(units) cnre.slice) \
		$(call at,$(sysusersdir))/cnre.conf $(call at,$(tmpfilesdir))/cnre.conf
	-rmdir $(call at,$(includedir))/cnre $(call at,$(docdir)/examples) $(call at,$(docdir)) $(call at,$(colibridir)) 2>/dev/null

dist_name := cnre-$(VERSION)
dist:
	$(Q)mkdir -p $(out)
	$(Q)(git ls-files --cached --others --exclude-standard 2>/dev/null || find . -type f ! -path './build/*' ! -path './.git/*' | sed 's|^\./||') | \
		tar -czf $(out)/$(dist_name).tar.gz --sort=name --owner=0 --group=0 --numeric-owner --transform='s|^|$(dist_name)/|' -T -
	@echo $(out)/$(dist_name).tar.gz

clean:
	rm -rf $(out) $(asan_build) $(tsan_build) $(crash_build) $(fuzz_build)

help:
	@sed -n '/^# make/,/^VERSION/s/^# //p' Makefile

.SECONDARY:
.PHONY: all without-inspect clean check-one bench-loader-bin bench-sim-bin tests stress fuzzers build-asan build-tsan build-fuzz colibri soak crash crash-programs check check-asan check-tsan check-header \
	check-install lint fuzz check-gpu bench-gpu bench demo setup setup-build setup-demo install install-units uninstall dist help FORCE
FORCE:
-include $(shell find $(out)/obj -name '*.d' 2>/dev/null)

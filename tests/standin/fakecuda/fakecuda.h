/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 for tests: no GPU, but the rules of one, across real processes. README.md says what is enforced. Tests
 * reach the functions below by dlsym(), or through tests/support/fake_gpu.h.
 *
 * The machine with its GPUs is one file, the world, that every process maps. Whoever comes first makes it, from the
 * environment; later ones take it as it is:
 *
 *   FAKECUDA_WORLD        path of the world's file, in a tmpfs (/dev/shm); unset: a world of this process alone
 *   FAKECUDA_DEVICES      how many devices, 0 to 8; 1 if unset
 *   FAKECUDA_MEMORY       bytes of each, "1G" or "1G,512M" (the last one counts for those after it); 1G
 *   FAKECUDA_GRANULE      every allocation is charged in multiples of it, per device as above; 2M
 *   FAKECUDA_UUIDS        "GPU-00112233-4455-6677-8899-aabbccddeeff,MIG-…", for the first devices
 *   FAKECUDA_CONTEXT      bytes that a context costs on its device; 0
 *   FAKECUDA_PINNED       bytes of host memory that one process may register; no limit
 *   FAKECUDA_OP_NS        how long each operation of a stream takes; 0
 *   FAKECUDA_MIB_NS       and each MiB that it moves; 0
 *
 * Of each process:
 *
 *   CUDA_VISIBLE_DEVICES  as the real driver has it: indices, or beginnings of GPU-… and MIG-… names
 *   FAKECUDA_REPORT       file to which each broken rule is appended, a line each; standard error if unset
 *   FAKECUDA_ABORT        1: abort() at the first broken rule
 *   FAKECUDA_FAIL         "cuMemAlloc_v2:3:2,stream:1:700": the 3rd call gives CUDA_ERROR_OUT_OF_MEMORY, the first operation
 *                         of a stream fails; "3+" instead of 3: from the 3rd on
 *   FAKECUDA_WAIT_MS      how long a call waits for a held stream before it gives up with CUDA_ERROR_LAUNCH_TIMEOUT; 60000
 */
#ifndef CNRE_TESTS_STANDIN_FAKECUDA_H
#define CNRE_TESTS_STANDIN_FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

/* Devices by their number in the world, whatever is visible; -1: all. pid 0: all processes. */
enum { FAKECUDA_EVERY_DEVICE = -1, FAKECUDA_EVERY_PROCESS = 0 };

/* Makes or opens the world, before any other call; cuInit() does the same by FAKECUDA_WORLD. 0 or -errno. */
int fakecuda_world(const char *path);

/* Streams of the device and process execute `allow` more operations, and then none until they are released. */
void fakecuda_hold(int device, int pid, uint32_t allow);
void fakecuda_release(int device, int pid);
void fakecuda_delay(uint64_t op_ns, uint64_t mib_ns);

/* Every call on the device gives code from now on, in every process, and its memory is lost. A restored device serves new
 * contexts only. */
void fakecuda_lose_device(int device, int code);
void fakecuda_restore_device(int device);
/* The same for the contexts of one process alone. */
void fakecuda_fail_context(int pid, int device, int code);
/* The nth call from now on (1: the next) of a function gives code; "stream": the nth operation that is executed. */
int fakecuda_fail(int pid, const char *function, uint32_t nth, int code, int repeats);

/* How often a rule was broken in all processes, by its name (rules.h); NULL: all rules, without those that are notes. */
uint64_t fakecuda_count(const char *rule);
/* The newest broken rule in words; "" if there is none. */
void fakecuda_last(char *text, size_t bytes);
void fakecuda_forget_reports(void);

struct fakecuda_usage {
	uint64_t total_bytes, used_bytes; /* as the device charges them */
	uint32_t allocations;
	uint32_t exported; /* of them */
	uint32_t orphans;  /* kept by importers after their exporter's death */
	uint32_t opened;   /* handles that are open, each counted once a process */
	uint32_t pending;  /* accesses that no host has synchronised with */
};
void fakecuda_usage(int device, struct fakecuda_usage *ret_usage);

struct fakecuda_process {
	int is_alive;
	uint64_t pinned_bytes, pinned_peak_bytes; /* registered or allocated by the driver */
	uint64_t staged_bytes, staged_peak_bytes; /* copies of pageable memory that wait */
	uint64_t queued, executed;                /* operations of its streams */
	uint32_t contexts, streams, opened;
};
/* -1: no such process has ever used this world. */
int fakecuda_process(int pid, struct fakecuda_process *ret_process);

/* Bytes of device memory of this process as they are now, without any rule; the number copied, or -1. */
long fakecuda_peek(uint64_t memory, void *to, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* See programs.h. */
#include "tools/inspect/programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inspect.skel.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINKS_MAX 512u
#define POSSIBLE_CPUS_MAX 4096

struct programs {
	struct programs_setup setup;
	struct inspect_bpf *skeleton;
	struct ring_buffer *ring;
	uint32_t link_count;
	struct bpf_link *link[LINKS_MAX];
};

/* libbpf's last complaint: often it alone knows why. */
static char complaint[256];

static int hear(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (level != LIBBPF_WARN)
		return 0;
	(void)vsnprintf(complaint, sizeof complaint, format, arguments);
	complaint[strcspn(complaint, "\n")] = '\0';
	return 0;
}

static int fail(const struct programs *programs, const char *step, int error, char *message)
{
	size_t length;

	preflight_explain(programs->setup.preflight, step, error, message);
	length = strlen(message);
	if (complaint[0] != '\0' && length < PREFLIGHT_MESSAGE_BYTES - 8)
		(void)snprintf(message + length, PREFLIGHT_MESSAGE_BYTES - length, " (%s)", complaint);
	return error;
}

static int hand_on(void *context, void *bytes, size_t length)
{
	const struct programs *programs = context;

	if (length >= sizeof(struct event))
		programs->setup.take(programs->setup.context, bytes);
	return 0;
}

int programs_open(struct programs **ret_programs, const struct programs_setup *setup, char message[PREFLIGHT_MESSAGE_BYTES])
{
	struct programs *programs = calloc(1, sizeof *programs);
	LIBBPF_OPTS(bpf_object_open_opts, options, .btf_custom_path = setup->preflight->btf);
	int r;

	(void)snprintf(message, PREFLIGHT_MESSAGE_BYTES, "out of memory");
	if (programs == NULL)
		return -ENOMEM;
	programs->setup = *setup;
	complaint[0] = '\0';
	(void)libbpf_set_print(hear);
	programs->skeleton = inspect_bpf__open_opts(&options);
	r = programs->skeleton == NULL ? -errno : inspect_bpf__load(programs->skeleton);
	if (r < 0) {
		r = fail(programs, "loading the programs into the kernel", r, message);
		programs_close(programs);
		return r;
	}
	programs->ring = ring_buffer__new(bpf_map__fd(programs->skeleton->maps.events), hand_on, programs, NULL);
	if (programs->ring == NULL) {
		r = fail(programs, "the ring of events", -errno, message);
		programs_close(programs);
		return r;
	}
	*ret_programs = programs;
	return 0;
}

struct programs *programs_close(struct programs *programs)
{
	if (programs == NULL)
		return NULL;
	for (uint32_t i = 0; i < programs->link_count; i++)
		(void)bpf_link__destroy(programs->link[i]);
	ring_buffer__free(programs->ring);
	inspect_bpf__destroy(programs->skeleton);
	free(programs);
	return NULL;
}

static int watch(struct bpf_map *map, uint32_t key)
{
	uint32_t one = 1;

	return bpf_map_update_elem(bpf_map__fd(map), &key, &one, BPF_ANY) < 0 ? -errno : 0;
}

int programs_watch_process(struct programs *programs, uint32_t process)
{
	return watch(programs->skeleton->maps.processes, process);
}

int programs_watch_device(struct programs *programs, uint64_t device)
{
	return watch(programs->skeleton->maps.devices, (uint32_t)device);
}

static int keep(struct programs *programs, struct bpf_link *link, const char *step, char *message)
{
	if (link == NULL)
		return fail(programs, step, -errno, message);
	programs->link[programs->link_count++] = link;
	return 0;
}

int programs_attach_reads(struct programs *programs, char message[PREFLIGHT_MESSAGE_BYTES])
{
	if (programs->link_count == LINKS_MAX)
		return fail(programs, "attaching to reads", -E2BIG, message);
	complaint[0] = '\0';
	return keep(programs, bpf_program__attach(programs->skeleton->progs.on_read), "attaching to block_bio_queue", message);
}

int programs_attach_probe(struct programs *programs, enum programs_probe_at at, const struct programs_place *place,
			  enum event_kind kind, char message[PREFLIGHT_MESSAGE_BYTES])
{
	const struct bpf_program *const program[PROGRAMS] = {
		[PROGRAMS_ON_PROBE] = programs->skeleton->progs.on_probe,
		[PROGRAMS_ON_FIRST_USE] = programs->skeleton->progs.on_first_use,
		[PROGRAMS_ON_LEASE_TAKEN] = programs->skeleton->progs.on_lease_taken,
		[PROGRAMS_ON_LEASE_RELEASED] = programs->skeleton->progs.on_lease_released,
	};
	LIBBPF_OPTS(bpf_usdt_opts, options, .usdt_cookie = kind);
	char step[256];

	(void)snprintf(step, sizeof step, "attaching to cnre:%.40s in %.160s", place->probe, place->shown);
	if (programs->link_count == LINKS_MAX)
		return fail(programs, step, -E2BIG, message);
	complaint[0] = '\0';
	return keep(programs, bpf_program__attach_usdt(program[at], -1, place->path, "cnre", place->probe, &options), step, message);
}

int programs_poll(struct programs *programs, int timeout_ms)
{
	int r = timeout_ms == 0 ? ring_buffer__consume(programs->ring) : ring_buffer__poll(programs->ring, timeout_ms);

	return r < 0 ? r : 0;
}

void programs_lost(const struct programs *programs, uint64_t ret_lost[EVENT_LOST_KINDS])
{
	static uint64_t count[POSSIBLE_CPUS_MAX];
	int cpus = libbpf_num_possible_cpus();

	for (uint32_t kind = 0; kind < EVENT_LOST_KINDS; kind++) {
		ret_lost[kind] = 0;
		if (cpus < 1 || cpus > POSSIBLE_CPUS_MAX ||
		    bpf_map_lookup_elem(bpf_map__fd(programs->skeleton->maps.lost), &kind, count) < 0)
			continue;
		for (int i = 0; i < cpus; i++)
			ret_lost[kind] += count[i];
	}
}

int programs_leases(const struct programs *programs,
		    int (*each)(void *context, const struct event_lease_key *key, const struct event_lease *lease), void *context)
{
	int fd = bpf_map__fd(programs->skeleton->maps.leases), r = 0;
	struct event_lease_key key, next;
	struct event_lease lease;
	int is_first = 1;

	/* Others come and go meanwhile: as many turns as there are places, so that it ends. */
	for (uint32_t i = 0; r == 0 && i < EVENT_LEASES_MAX; i++) {
		if (bpf_map_get_next_key(fd, is_first ? NULL : &key, &next) < 0)
			break;
		is_first = 0;
		key = next;
		if (bpf_map_lookup_elem(fd, &key, &lease) == 0)
			r = each(context, &key, &lease);
	}
	return r;
}

uint32_t programs_stack(const struct programs *programs, int32_t stack, uint64_t ret_address[EVENT_STACK_DEPTH])
{
	uint32_t key = (uint32_t)stack, count = 0;

	memset(ret_address, 0, EVENT_STACK_DEPTH * sizeof ret_address[0]);
	if (stack < 0 || bpf_map_lookup_elem(bpf_map__fd(programs->skeleton->maps.stacks), &key, ret_address) < 0)
		return 0;
	while (count < EVENT_STACK_DEPTH && ret_address[count] != 0)
		count++;
	return count;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The client library's manager in tests; see fake_host.h. One lock; two threads: sockets, and requests. */
#include "tests/support/fake_host.h"

#include "shm/counters.h"
#include "shm/futex.h"
#include "shm/ledger.h"
#include "shm/ring.h"
#include "shm/segment.h"
#include "shm/wire.h"
#include "shm/word.h"
#include "tests/support/fake_kv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SESSIONS_MAX 32u
#define SLAB_BYTES 4096u
#define LOOK_NS 20000000LL /* how long new sessions' bells may stay unknown to the loader */

struct fake_session {
	int socket; /* -1: none */
	uint32_t number, ring_head;
	struct cnre_segment channel, ledger;
};

struct fake_host {
	struct fake_host_setup setup;
	uint32_t object_count, per_segment;
	char directory[64], path[108];
	int listener, wake_event;
	int stopping, paused;
	pthread_t sockets, loader;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct cnre_segment page, counters, catalog, directory_segment, *pool;
	struct fake_session session[SESSIONS_MAX];
	uint32_t hello_flags;
	uint32_t next_session, detaches, eofs, hellos, segments_eofs;
	uint32_t *loads;
	uint32_t requests[3];
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
};

#define MUST(e) ((e) ? (void)0 : fail(#e, __LINE__))

static void fail(const char *what, int line)
{
	(void)fprintf(stderr, "fake_host: line %d: %s (%s)\n", line, what, strerror(errno));
	abort();
}

static struct cnre_entry *entry_of(struct fake_host *host, uint32_t object)
{
	return &((struct cnre_directory *)host->directory_segment.base)->entry[object];
}

static struct cnre_page *page_of(struct fake_host *host)
{
	return host->page.base;
}

/* ---- the model ---- */

static void make_segment(struct cnre_segment *segment, const char *name, enum cnre_segment_kind kind, uint64_t bytes,
			 unsigned flags)
{
	MUST(cnre_segment_create(segment, name, bytes, CNRE_BACKING_4K, -1, flags) == 0);
	if (kind != CNRE_SEGMENT_POOL)
		cnre_segment_fill_header(segment->base, kind, bytes);
}

static void make_catalog(struct fake_host *host)
{
	uint64_t layers_off = sizeof(struct cnre_catalog);
	uint64_t shapes_off = layers_off + host->setup.layer_count * sizeof(struct cnre_catalog_layer);
	uint64_t objects_off = shapes_off + sizeof(struct cnre_catalog_shape);
	struct cnre_catalog *catalog;
	struct cnre_catalog_shape *shape;
	struct cnre_catalog_layer *layer;
	struct cnre_catalog_object *object;

	make_segment(&host->catalog, "fake-catalog", CNRE_SEGMENT_CATALOG,
		     objects_off + host->object_count * sizeof *object, 0);
	catalog = host->catalog.base;
	(void)strcpy(catalog->family, "fake-family");
	(void)strcpy(catalog->name, FAKE_HOST_MODEL);
	memset(catalog->identity, 0x5a, sizeof catalog->identity);
	catalog->layer_count = host->setup.layer_count;
	catalog->expert_count = host->setup.expert_count;
	catalog->top_k = 2;
	catalog->object_count = host->object_count;
	catalog->shape_count = 1;
	catalog->capabilities = 1;
	catalog->payload_bytes_min = catalog->payload_bytes_max = 3 * FAKE_HOST_PART_BYTES;
	catalog->payload_bytes_total = (uint64_t)host->object_count * 3 * FAKE_HOST_PART_BYTES;
	catalog->slab_bytes_max = SLAB_BYTES;
	catalog->layers_off = layers_off;
	catalog->shapes_off = shapes_off;
	catalog->objects_off = objects_off;
	shape = (void *)((char *)catalog + shapes_off);
	shape->payload_bytes = 3 * FAKE_HOST_PART_BYTES;
	shape->slab_bytes = SLAB_BYTES;
	for (unsigned role = 0; role < 3; role++)
		shape->part[role] = (struct cnre_catalog_part){
			.bytes = FAKE_HOST_PART_BYTES, .rows = 16, .columns = 16, .dtype = 1};
	for (unsigned role = 0; role < 3 && host->setup.is_f32; role++)
		shape->part[role] = (struct cnre_catalog_part){.bytes = FAKE_HOST_PART_BYTES,
							       .rows = role == 2 ? 16 : 8,
							       .columns = role == 2 ? 8 : 16,
							       .dtype = 3};
	layer = (void *)((char *)catalog + layers_off);
	for (uint32_t i = host->setup.dense_layers; i < host->setup.layer_count; i++)
		layer[i] = (struct cnre_catalog_layer){(i - host->setup.dense_layers) * host->setup.expert_count,
						       host->setup.expert_count};
	object = (void *)((char *)catalog + objects_off);
	for (uint32_t i = 0; i < host->object_count; i++)
		for (unsigned role = 0; role < 3; role++)
			object[i].part_off[role] = role * FAKE_HOST_PART_BYTES;
	cnre_segment_publish(&catalog->header);
}

static uint64_t place_of(const struct fake_host *host, uint32_t object)
{
	uint32_t segment = object % host->setup.segment_count;

	if (host->setup.hole != 0 && segment == host->setup.hole - 1)
		segment = (segment + 1) % host->setup.segment_count;
	return cnre_place_pack(segment, (uint64_t)object * SLAB_BYTES);
}

static void make_segments(struct fake_host *host)
{
	struct cnre_directory *directory;

	make_segment(&host->page, "fake-page", CNRE_SEGMENT_PAGE, sizeof(struct cnre_page), 0);
	make_segment(&host->counters, "fake-counters", CNRE_SEGMENT_COUNTERS, sizeof(struct cnre_counters), 0);
	make_segment(&host->directory_segment, "fake-directory", CNRE_SEGMENT_DIRECTORY,
		     sizeof(struct cnre_directory) + host->object_count * sizeof(struct cnre_entry), 0);
	make_catalog(host);
	directory = host->directory_segment.base;
	directory->object_count = host->object_count;
	page_of(host)->vram_devices = host->setup.vram != NULL;
	page_of(host)->budget_bytes = page_of(host)->pool_bytes = (uint64_t)host->object_count * SLAB_BYTES;
	host->pool = calloc(host->setup.segment_count, sizeof *host->pool);
	MUST(host->pool != NULL);
	/* Each segment is as large as the whole model, which makes places simple. */
	for (uint32_t i = 0; i < host->setup.segment_count; i++)
		make_segment(&host->pool[i], "fake-pool", CNRE_SEGMENT_POOL, (uint64_t)host->object_count * SLAB_BYTES,
			     0);
	cnre_segment_publish(host->page.base);
	cnre_segment_publish(host->counters.base);
	cnre_segment_publish(host->directory_segment.base);
}

/* ---- objects ---- */

static void set_state(struct fake_host *host, uint32_t object, uint32_t generation, enum cnre_load_error error,
		      enum cnre_state state)
{
	atomic_store_explicit(&entry_of(host, object)->state, cnre_word_pack(generation, error, state),
			      memory_order_seq_cst);
	if (state != CNRE_STATE_LOADING)
		(void)cnre_futex_wake_all(&entry_of(host, object)->state);
}

static uint32_t word_of(struct fake_host *host, uint32_t object)
{
	return atomic_load_explicit(&entry_of(host, object)->state, memory_order_seq_cst);
}

static void finish_locked(struct fake_host *host, uint32_t object, enum cnre_load_error error)
{
	struct cnre_entry *entry = entry_of(host, object);
	uint32_t generation = cnre_word_generation(word_of(host, object));
	uint64_t place = place_of(host, object);
	uint32_t *slab = (uint32_t *)((char *)host->pool[cnre_place_segment(place)].base + cnre_place_offset(place));

	for (unsigned i = 0; i < SLAB_BYTES / sizeof *slab; i++)
		slab[i] = object;
	atomic_store_explicit(&entry->read_bytes, SLAB_BYTES, memory_order_relaxed);
	atomic_store_explicit(&entry->service_ns, 1000, memory_order_relaxed);
	atomic_fetch_add_explicit(&entry->load_sequence, 1, memory_order_relaxed);
	if (error == CNRE_LOAD_OK)
		set_state(host, object, generation, CNRE_LOAD_OK, CNRE_STATE_READY);
	else
		set_state(host, object, generation + 1, error, CNRE_STATE_ABSENT);
}

static void load_locked(struct fake_host *host, uint32_t object, uint32_t starter)
{
	struct cnre_entry *entry = entry_of(host, object);
	int r = 0;

	if (object >= host->object_count || cnre_word_state(word_of(host, object)) != CNRE_STATE_ABSENT)
		return;
	atomic_store_explicit(&entry->place, place_of(host, object), memory_order_relaxed);
	atomic_store_explicit(&entry->starter, starter, memory_order_relaxed);
	set_state(host, object, cnre_word_generation(word_of(host, object)), CNRE_LOAD_OK, CNRE_STATE_LOADING);
	host->loads[object]++;
	if (host->setup.load != NULL)
		r = host->setup.load(host->setup.context, object);
	if (r <= 0)
		finish_locked(host, object, (enum cnre_load_error) - r);
}

static uint64_t ledger_word(const struct fake_session *session, uint32_t object)
{
	return cnre_ledger_scan(&((struct cnre_ledger *)session->ledger.base)->word[object]);
}

/* ---- the loader's thread ---- */

static void serve_request(struct fake_host *host, const struct fake_session *session,
			  const struct cnre_request *request)
{
	int is_load = request->kind == CNRE_REQUEST_LOAD;

	if (request->kind < 3)
		host->requests[request->kind]++;
	for (uint32_t i = 0; i < request->count; i++)
		if (!is_load || CNRE_LEDGER_LEASES(ledger_word(session, request->object[i])) != 0)
			load_locked(host, request->object[i], is_load ? session->number : 0);
	(void)pthread_cond_broadcast(&host->changed);
}

static void serve_session(struct fake_host *host, struct fake_session *session)
{
	struct cnre_request request;

	while (cnre_ring_take(session->channel.base, &session->ring_head, &request) == 1)
		serve_request(host, session, &request);
	if (!cnre_ring_take_want_scan(session->channel.base))
		return;
	for (uint32_t i = 0; i < host->object_count; i++)
		if (CNRE_LEDGER_LEASES(ledger_word(session, i)) != 0)
			load_locked(host, i, session->number);
}

static void sleep_on_bells(struct futex_waitv *bells, uint32_t count)
{
	struct timespec end;

	(void)clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += LOOK_NS;
	end.tv_sec += end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	if (count > 0)
		(void)syscall(SYS_futex_waitv, bells, count, 0, &end, CLOCK_MONOTONIC);
	else
		(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
}

static void *run_loader(void *context)
{
	struct fake_host *host = context;
	struct futex_waitv bells[SESSIONS_MAX];

	for (;;) {
		uint32_t count = 0;

		(void)pthread_mutex_lock(&host->lock);
		if (host->stopping)
			break;
		for (unsigned i = 0; i < SESSIONS_MAX && !host->paused; i++) {
			struct cnre_channel *channel = host->session[i].channel.base;

			if (channel == NULL)
				continue;
			bells[count++] =
				(struct futex_waitv){.uaddr = (uintptr_t)&channel->bell,
						     .flags = FUTEX_32,
						     .val = atomic_load_explicit(&channel->bell, memory_order_seq_cst)};
			serve_session(host, &host->session[i]);
		}
		(void)pthread_mutex_unlock(&host->lock);
		sleep_on_bells(bells, count);
	}
	(void)pthread_mutex_unlock(&host->lock);
	return NULL;
}

/* ---- the sockets' thread ---- */

static void end_session(struct fake_session *session)
{
	if (session->socket >= 0)
		(void)close(session->socket);
	session->socket = -1;
	if (session->number != 0) {
		cnre_segment_close(&session->channel);
		cnre_segment_close(&session->ledger);
	}
	session->number = 0;
}

static void make_channel(struct fake_host *host, struct fake_session *session)
{
	struct cnre_channel *channel;

	session->number = ++host->next_session;
	session->ring_head = 0;
	make_segment(&session->channel, "fake-channel", CNRE_SEGMENT_CHANNEL,
		     CNRE_CHANNEL_BYTES(host->setup.layer_count), CNRE_SEGMENT_CLIENT_WRITES);
	make_segment(&session->ledger, "fake-ledger", CNRE_SEGMENT_LEDGER,
		     sizeof(struct cnre_ledger) + host->object_count * sizeof(uint64_t), CNRE_SEGMENT_CLIENT_WRITES);
	channel = session->channel.base;
	channel->session = session->number;
	channel->account_count = host->setup.layer_count;
	cnre_segment_publish(session->channel.base);
	cnre_segment_publish(session->ledger.base);
}

static void answer_hello(struct fake_host *host, struct fake_session *session, uint32_t id)
{
	struct cnre_wire_welcome welcome = {.status = host->setup.welcome_status};
	int fds[CNRE_FD_COUNT];

	cnre_wire_fill(&welcome.header, CNRE_WIRE_WELCOME, id, sizeof welcome);
	if (welcome.status != 0) {
		(void)cnre_wire_send(session->socket, &welcome, sizeof welcome, NULL, 0);
		return;
	}
	make_channel(host, session);
	welcome.session = session->number;
	welcome.reserve_slabs = host->setup.reserve_slabs;
	welcome.reserve_bytes = (uint64_t)host->setup.reserve_slabs * SLAB_BYTES;
	fds[CNRE_FD_PAGE] = cnre_segment_reopen_readonly(&host->page);
	fds[CNRE_FD_COUNTERS] = cnre_segment_reopen_readonly(&host->counters);
	fds[CNRE_FD_CATALOG] = cnre_segment_reopen_readonly(&host->catalog);
	fds[CNRE_FD_DIRECTORY] = cnre_segment_reopen_readonly(&host->directory_segment);
	fds[CNRE_FD_CHANNEL] = session->channel.fd;
	fds[CNRE_FD_LEDGER] = session->ledger.fd;
	(void)cnre_wire_send(session->socket, &welcome, sizeof welcome, fds, CNRE_FD_COUNT);
	for (unsigned i = CNRE_FD_PAGE; i <= CNRE_FD_DIRECTORY; i++)
		(void)close(fds[i]);
}

/* At most two a message, so that a few segments already need several. */
static void answer_segments(struct fake_host *host, struct fake_session *session, uint32_t id, uint32_t first)
{
	struct cnre_wire_segments told = {.total = host->setup.segments_shown};
	int has_unread = cnre_wire_has_unread(session->socket);
	uint32_t hole = host->setup.hole - 1;
	int fds[2];

	if (host->setup.hole != 0 && first == hole)
		first++;
	told.first = first;
	told.status = has_unread ? -EAGAIN : 0;
	while (!has_unread && told.count < 2 && first + told.count < told.total && first + told.count != hole) {
		fds[told.count] = cnre_segment_reopen_readonly(&host->pool[first + told.count]);
		MUST(fds[told.count] >= 0);
		told.count++;
	}
	cnre_wire_fill(&told.header, CNRE_WIRE_SEGMENTS, id, sizeof told);
	(void)cnre_wire_send(session->socket, &told, sizeof told, fds, told.count);
	for (uint32_t i = 0; i < told.count; i++)
		(void)close(fds[i]);
}

static void answer_kv(struct fake_host *host, const struct fake_session *session)
{
	struct cnre_wire_kv_opened opened = {.status = -ENOTSUP};
	struct cnre_wire_header header;

	memcpy(&header, host->buffer, sizeof header);
	if (host->setup.kv != NULL && fake_kv_answer(host->setup.kv, session->socket, session->number, host->buffer))
		return;
	cnre_wire_fill(&opened.header, CNRE_WIRE_KV_OPENED, header.id, sizeof opened);
	if (header.type == CNRE_WIRE_KV_OPEN)
		(void)cnre_wire_send(session->socket, &opened, sizeof opened, NULL, 0);
}

static void hear_hang_up(struct fake_host *host, struct fake_session *session)
{
	if (session->number == 0 || !host->setup.keeps_disconnected) {
		end_session(session);
		return;
	}
	(void)close(session->socket);
	session->socket = -1;
}

static void answer(struct fake_host *host, struct fake_session *session)
{
	int fds[CNRE_WIRE_FDS_MAX];
	size_t fd_count = 0;
	struct cnre_wire_header header;
	struct cnre_wire_segments segments;
	struct cnre_wire_detach detach;
	struct cnre_wire_hello hello;

	if (cnre_wire_receive(session->socket, host->buffer, fds, &fd_count) <= 0) {
		hear_hang_up(host, session);
		return;
	}
	memcpy(&header, host->buffer, sizeof header);
	if (header.type == CNRE_WIRE_HELLO) {
		memcpy(&hello, host->buffer, sizeof hello);
		host->hello_flags = hello.flags;
	}
	if (header.type == CNRE_WIRE_HELLO && ++host->hellos > host->setup.ignored_hellos)
		answer_hello(host, session, header.id);
	if (header.type == CNRE_WIRE_SEGMENTS) {
		memcpy(&segments, host->buffer, sizeof segments);
		if (segments.first > 0 && host->segments_eofs < (uint32_t)host->setup.segments_eof_count) {
			host->segments_eofs++;
			end_session(session);
		} else {
			answer_segments(host, session, header.id, segments.first);
		}
	}
	answer_kv(host, session);
	if (host->setup.vram != NULL)
		(void)host->setup.vram_answer(host->setup.vram, session->socket, session->number, host->buffer);
	if (header.type == CNRE_WIRE_DETACH) {
		host->detaches++;
		cnre_wire_fill(&detach.header, CNRE_WIRE_DETACH, header.id, sizeof detach);
		(void)cnre_wire_send(session->socket, &detach, sizeof detach, NULL, 0);
		end_session(session);
	}
}

static void accept_one(struct fake_host *host)
{
	int socket = accept4(host->listener, NULL, NULL, SOCK_CLOEXEC);

	if (socket < 0)
		return;
	if (host->eofs < (uint32_t)host->setup.eof_count) {
		host->eofs++;
		(void)close(socket);
		return;
	}
	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		if (host->session[i].socket < 0 && host->session[i].number == 0) {
			host->session[i].socket = socket;
			return;
		}
	(void)close(socket);
}

static void *run_sockets(void *context)
{
	struct fake_host *host = context;

	for (;;) {
		struct pollfd polled[SESSIONS_MAX + 2] = {{.fd = host->wake_event, .events = POLLIN},
							  {.fd = host->listener, .events = POLLIN}};
		uint64_t woken;
		nfds_t count;

		(void)pthread_mutex_lock(&host->lock);
		for (unsigned i = 0; i < SESSIONS_MAX; i++)
			polled[i + 2] = (struct pollfd){.fd = host->session[i].socket, .events = POLLIN};
		count = host->paused ? 1 : SESSIONS_MAX + 2;
		(void)pthread_mutex_unlock(&host->lock);
		(void)poll(polled, count, -1);
		(void)pthread_mutex_lock(&host->lock);
		if (polled[0].revents != 0)
			MUST(read(host->wake_event, &woken, sizeof woken) == sizeof woken);
		if (host->stopping)
			break;
		for (unsigned i = 0; i < SESSIONS_MAX && !host->paused; i++)
			if (polled[i + 2].revents != 0 && host->session[i].socket == polled[i + 2].fd)
				answer(host, &host->session[i]);
		if (polled[1].revents != 0 && !host->paused)
			accept_one(host);
		(void)pthread_cond_broadcast(&host->changed);
		(void)pthread_mutex_unlock(&host->lock);
	}
	(void)pthread_mutex_unlock(&host->lock);
	return NULL;
}

/* ---- life ---- */

static void listen_at(struct fake_host *host)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (host->setup.socket != NULL) {
		(void)snprintf(host->path, sizeof host->path, "%s", host->setup.socket);
	} else {
		(void)strcpy(host->directory, "/tmp/cnre-test-XXXXXX");
		MUST(mkdtemp(host->directory) != NULL);
		(void)snprintf(host->path, sizeof host->path, "%s/fake.sock", host->directory);
	}
	(void)strcpy(address.sun_path, host->path);
	host->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	MUST(bind(host->listener, (struct sockaddr *)&address, sizeof address) == 0);
	MUST(listen(host->listener, 16) == 0);
}

static void apply_defaults(struct fake_host_setup *setup)
{
	setup->layer_count = setup->layer_count != 0 ? setup->layer_count : 4;
	setup->expert_count = setup->expert_count != 0 ? setup->expert_count : 16;
	setup->reserve_slabs = setup->reserve_slabs != 0 ? setup->reserve_slabs : 8;
	setup->segment_count = setup->segment_count != 0 ? setup->segment_count : 1;
	setup->segments_shown = setup->segments_shown != 0 ? setup->segments_shown : setup->segment_count;
}

struct fake_host *fake_host_start(const struct fake_host_setup *setup)
{
	struct fake_host *host = calloc(1, sizeof *host);

	MUST(host != NULL);
	if (setup != NULL)
		host->setup = *setup;
	apply_defaults(&host->setup);
	host->object_count = (host->setup.layer_count - host->setup.dense_layers) * host->setup.expert_count;
	host->loads = calloc(host->object_count, sizeof *host->loads);
	MUST(host->loads != NULL);
	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		host->session[i].socket = -1;
	MUST(pthread_mutex_init(&host->lock, NULL) == 0 && pthread_cond_init(&host->changed, NULL) == 0);
	make_segments(host);
	listen_at(host);
	host->wake_event = eventfd(0, EFD_CLOEXEC);
	MUST(host->wake_event >= 0);
	MUST(pthread_create(&host->sockets, NULL, run_sockets, host) == 0);
	MUST(pthread_create(&host->loader, NULL, run_loader, host) == 0);
	return host;
}

static void wake_sockets(struct fake_host *host)
{
	uint64_t one = 1;

	MUST(write(host->wake_event, &one, sizeof one) == sizeof one);
}

void fake_host_stop(struct fake_host *host)
{
	(void)pthread_mutex_lock(&host->lock);
	host->stopping = 1;
	(void)pthread_mutex_unlock(&host->lock);
	wake_sockets(host);
	(void)pthread_join(host->sockets, NULL);
	(void)pthread_join(host->loader, NULL);
	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		end_session(&host->session[i]);
	(void)close(host->listener);
	(void)close(host->wake_event);
	(void)unlink(host->path);
	if (host->directory[0] != '\0')
		(void)rmdir(host->directory);
	for (uint32_t i = 0; i < host->setup.segment_count; i++)
		cnre_segment_close(&host->pool[i]);
	cnre_segment_close(&host->page);
	cnre_segment_close(&host->counters);
	cnre_segment_close(&host->catalog);
	cnre_segment_close(&host->directory_segment);
	(void)pthread_mutex_destroy(&host->lock);
	(void)pthread_cond_destroy(&host->changed);
	free(host->pool);
	free(host->loads);
	free(host);
}

const char *fake_host_socket(const struct fake_host *host)
{
	return host->path;
}

/* ---- what it saw ---- */

struct cnre_page *fake_host_page(struct fake_host *host)
{
	return page_of(host);
}

uint32_t fake_host_loads(struct fake_host *host, uint32_t object)
{
	uint32_t loads;

	(void)pthread_mutex_lock(&host->lock);
	loads = host->loads[object];
	(void)pthread_mutex_unlock(&host->lock);
	return loads;
}

uint32_t fake_host_requests(struct fake_host *host, uint32_t kind)
{
	uint32_t requests;

	(void)pthread_mutex_lock(&host->lock);
	requests = host->requests[kind];
	(void)pthread_mutex_unlock(&host->lock);
	return requests;
}

void fake_host_await_requests(struct fake_host *host, uint32_t kind, uint32_t count)
{
	(void)pthread_mutex_lock(&host->lock);
	while (host->requests[kind] < count)
		(void)pthread_cond_wait(&host->changed, &host->lock);
	(void)pthread_mutex_unlock(&host->lock);
}

uint32_t fake_host_sessions(struct fake_host *host)
{
	uint32_t count = 0;

	(void)pthread_mutex_lock(&host->lock);
	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		count += host->session[i].number != 0;
	(void)pthread_mutex_unlock(&host->lock);
	return count;
}

uint32_t fake_host_hello_flags(struct fake_host *host)
{
	uint32_t flags;

	(void)pthread_mutex_lock(&host->lock);
	flags = host->hello_flags;
	(void)pthread_mutex_unlock(&host->lock);
	return flags;
}

uint32_t fake_host_detaches(struct fake_host *host)
{
	uint32_t detaches;

	(void)pthread_mutex_lock(&host->lock);
	detaches = host->detaches;
	(void)pthread_mutex_unlock(&host->lock);
	return detaches;
}

static uint64_t sum_locked(struct fake_host *host, uint32_t object)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		if (host->session[i].number != 0)
			sum += ledger_word(&host->session[i], object);
	return sum;
}

static uint64_t sum_of(struct fake_host *host, uint32_t object)
{
	uint64_t sum;

	(void)pthread_mutex_lock(&host->lock);
	sum = sum_locked(host, object);
	(void)pthread_mutex_unlock(&host->lock);
	return sum;
}

uint32_t fake_host_leases(struct fake_host *host, uint32_t object)
{
	return CNRE_LEDGER_LEASES(sum_of(host, object));
}

uint32_t fake_host_accesses(struct fake_host *host, uint32_t object)
{
	return CNRE_LEDGER_ACCESSES(sum_of(host, object));
}

void fake_host_await_leases(struct fake_host *host, uint32_t object, uint32_t count)
{
	while (fake_host_leases(host, object) != count)
		(void)sched_yield(); /* a word that nobody wakes anyone for */
}

static uint64_t sum_misses(struct fake_host *host, uint32_t layer)
{
	uint64_t sum = 0;

	(void)pthread_mutex_lock(&host->lock);
	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		if (host->session[i].number != 0) {
			struct cnre_account *account =
				(void *)((char *)host->session[i].channel.base + CNRE_CHANNEL_ACCOUNTS_OFF);

			sum += atomic_load_explicit(&account[layer].misses, memory_order_seq_cst);
		}
	(void)pthread_mutex_unlock(&host->lock);
	return sum;
}

void fake_host_await_misses(struct fake_host *host, uint32_t layer, uint32_t count)
{
	while (sum_misses(host, layer) < count)
		(void)sched_yield(); /* as fake_host_await_leases */
}

struct cnre_channel *fake_host_channel(struct fake_host *host)
{
	return host->session[0].channel.base;
}

/* ---- what it does ---- */

void fake_host_fill(struct fake_host *host, uint32_t object)
{
	(void)pthread_mutex_lock(&host->lock);
	atomic_store_explicit(&entry_of(host, object)->place, place_of(host, object), memory_order_relaxed);
	finish_locked(host, object, CNRE_LOAD_OK);
	(void)pthread_mutex_unlock(&host->lock);
}

void fake_host_finish(struct fake_host *host, uint32_t object, enum cnre_load_error error)
{
	(void)pthread_mutex_lock(&host->lock);
	finish_locked(host, object, error);
	(void)pthread_mutex_unlock(&host->lock);
}

void fake_host_store_state(struct fake_host *host, uint32_t object, enum cnre_state state)
{
	uint32_t generation = cnre_word_generation(word_of(host, object));

	atomic_store_explicit(&entry_of(host, object)->state, cnre_word_pack(generation, CNRE_LOAD_OK, state),
			      memory_order_seq_cst);
}

void fake_host_wake(struct fake_host *host, uint32_t object)
{
	(void)cnre_futex_wake_all(&entry_of(host, object)->state);
}

static int evict_locked(struct fake_host *host, uint32_t object)
{
	uint32_t generation = cnre_word_generation(word_of(host, object));

	cnre_ledger_store_evicting(entry_of(host, object),
				   cnre_word_pack(generation, CNRE_LOAD_OK, CNRE_STATE_EVICTING));
	if (CNRE_LEDGER_LEASES(sum_locked(host, object)) != 0) {
		set_state(host, object, generation, CNRE_LOAD_OK, CNRE_STATE_READY);
		return 0;
	}
	/* Whoever reads these bytes from here on holds no lease. */
	memset((char *)host->pool[cnre_place_segment(place_of(host, object))].base +
		       cnre_place_offset(place_of(host, object)),
	       0xee, SLAB_BYTES);
	set_state(host, object, generation + 1, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	return 1;
}

int fake_host_evict(struct fake_host *host, uint32_t object)
{
	int gone;

	(void)pthread_mutex_lock(&host->lock);
	gone = evict_locked(host, object);
	(void)pthread_mutex_unlock(&host->lock);
	return gone;
}

int fake_host_evict_ready(struct fake_host *host, uint32_t object)
{
	int gone = 0;

	(void)pthread_mutex_lock(&host->lock);
	if (cnre_word_state(word_of(host, object)) == CNRE_STATE_READY)
		gone = evict_locked(host, object);
	(void)pthread_mutex_unlock(&host->lock);
	return gone;
}

void fake_host_show_segments(struct fake_host *host, uint32_t count)
{
	(void)pthread_mutex_lock(&host->lock);
	host->setup.segments_shown = count;
	(void)pthread_mutex_unlock(&host->lock);
}

void fake_host_hang_up(struct fake_host *host)
{
	(void)pthread_mutex_lock(&host->lock);
	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		if (host->session[i].socket >= 0)
			(void)shutdown(host->session[i].socket, SHUT_RDWR);
	(void)pthread_mutex_unlock(&host->lock);
}

void fake_host_say_to_nobody(struct fake_host *host)
{
	struct cnre_wire_segments told = {.count = 2};
	int fds[2];

	for (unsigned i = 0; i < 2; i++) {
		fds[i] = cnre_segment_reopen_readonly(&host->pool[0]);
		MUST(fds[i] >= 0);
	}
	cnre_wire_fill(&told.header, CNRE_WIRE_SEGMENTS, 0, sizeof told);
	(void)pthread_mutex_lock(&host->lock);
	MUST(cnre_wire_send(host->session[0].socket, &told, sizeof told, fds, 2) == 0);
	(void)pthread_mutex_unlock(&host->lock);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

/* ---- restarts ---- */

void fake_host_pause(struct fake_host *host)
{
	(void)pthread_mutex_lock(&host->lock);
	host->paused = 1;
	(void)pthread_mutex_unlock(&host->lock);
	wake_sockets(host);
}

void fake_host_resume(struct fake_host *host)
{
	(void)pthread_mutex_lock(&host->lock);
	host->paused = 0;
	(void)pthread_mutex_unlock(&host->lock);
	wake_sockets(host);
}

void fake_host_change_epoch(struct fake_host *host)
{
	(void)atomic_fetch_add_explicit(&page_of(host)->epoch, 1, memory_order_seq_cst);
	(void)cnre_futex_wake_all(&page_of(host)->epoch);
}

/* What the dead manager had begun with an object. */
static void undo_locked(struct fake_host *host, uint32_t object)
{
	uint32_t generation = cnre_word_generation(word_of(host, object));

	if (cnre_word_state(word_of(host, object)) == CNRE_STATE_LOADING)
		set_state(host, object, generation, CNRE_LOAD_OK, CNRE_STATE_ABSENT);
	else if (cnre_word_state(word_of(host, object)) == CNRE_STATE_EVICTING)
		(void)evict_locked(host, object);
}

static void adopt_session(struct fake_host *host, struct fake_session *session, unsigned flags)
{
	struct cnre_request request;

	if ((flags & FAKE_HOST_FORGETS) == 0) {
		cnre_ring_want_scan(session->channel.base);
		serve_session(host, session);
		return;
	}
	while (cnre_ring_take(session->channel.base, &session->ring_head, &request) == 1)
		continue;
	(void)cnre_ring_take_want_scan(session->channel.base);
}

void fake_host_restart(struct fake_host *host, unsigned flags)
{
	(void)pthread_mutex_lock(&host->lock);
	for (uint32_t i = 0; i < host->object_count; i++)
		undo_locked(host, i);
	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		if (host->session[i].number != 0)
			adopt_session(host, &host->session[i], flags);
		else
			end_session(&host->session[i]);
	fake_host_change_epoch(host);
	for (uint32_t i = 0; i < host->object_count; i++)
		fake_host_wake(host, i);
	host->paused = 0;
	(void)pthread_mutex_unlock(&host->lock);
	wake_sockets(host);
}

void fake_host_lose_message(struct fake_host *host)
{
	char buffer[CNRE_WIRE_MESSAGE_MAX];

	MUST(cnre_wire_receive(host->session[0].socket, buffer, NULL, NULL) > 0); /* the socket blocks */
}

void fake_host_await_unread(struct fake_host *host, uint32_t bytes)
{
	int unread = 0;

	while ((uint32_t)unread < bytes) {
		MUST(ioctl(host->session[0].socket, FIONREAD, &unread) == 0);
		(void)sched_yield(); /* as fake_host_await_leases */
	}
}

void fake_host_await_connection(struct fake_host *host)
{
	struct pollfd listener = {.fd = host->listener, .events = POLLIN};

	MUST(poll(&listener, 1, -1) == 1);
}

/* Waits for a count that the sockets' thread keeps. */
static void await_count(struct fake_host *host, const uint32_t *counter, uint32_t count)
{
	(void)pthread_mutex_lock(&host->lock);
	while (*counter < count)
		(void)pthread_cond_wait(&host->changed, &host->lock);
	(void)pthread_mutex_unlock(&host->lock);
}

void fake_host_await_hellos(struct fake_host *host, uint32_t count)
{
	await_count(host, &host->hellos, count);
}

void fake_host_await_detaches(struct fake_host *host, uint32_t count)
{
	await_count(host, &host->detaches, count);
}

void fake_host_await_posts(struct fake_host *host, uint32_t count)
{
	while (atomic_load_explicit(&fake_host_channel(host)->ring_tail, memory_order_seq_cst) < count)
		(void)sched_yield(); /* as fake_host_await_leases */
}

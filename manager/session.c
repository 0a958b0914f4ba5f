/* SPDX-License-Identifier: Apache-2.0 */
/* Beginning and ending of sessions; see session.h. What a session asks on its socket is in conversation.c. */
#include "manager/session.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/size.h"
#include "manager/bell.h"
#include "manager/channel.h"
#include "manager/conversation.h"
#include "manager/feed.h"
#include "manager/kv.h"
#include "manager/layer_count.h"
#include "manager/match.h"
#include "manager/metrics.h"
#include "manager/persist.h"
#include "manager/reservation.h"
#include "manager/residency.h"
#include "manager/settings.h"
#include "manager/state.h"
#include "manager/store.h"
#include "manager/vram.h"
#include "shm/ledger.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* CNRE_NO_EXPERTS of cnre.h: the client leases nothing, so it reserves nothing. */
#define HELLO_NO_EXPERTS (1u << 2)
#define HELLO_KNOWN_FLAGS 15u

#define SESSION_LOG_LINES 200u /* in 10 s: more than a machine full of engines starting at once */

int session_table_open(struct session_table **ret_table)
{
	struct session_table *table = calloc(1, sizeof *table);

	if (table == NULL)
		return -ENOMEM;
	table->log_limit.burst = SESSION_LOG_LINES;
	*ret_table = table;
	return 0;
}

struct session_table *session_table_close(struct session_table *table)
{
	CNRE_CHECK(table == NULL || table->active_count == 0);
	free(table);
	return NULL;
}

/* ---- beginning ---- */

static int find_slot(const struct session_table *table, uint32_t *ret_slot)
{
	for (uint32_t i = 0; i < CNRE_SESSIONS_MAX; i++) {
		if (table->by_slot[i] == NULL) {
			*ret_slot = i;
			return 0;
		}
	}
	return -EAGAIN;
}

static uint32_t sessions_of(const struct session_table *table, uid_t uid)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < table->active_count; i++)
		count += table->active[i]->peer.uid == uid;
	return count;
}

static int check_limits(struct manager *manager, const struct peer *peer, char *message)
{
	const struct session_table *table = manager->sessions;

	/* Those that end keep their memory for some milliseconds: bounded too, but not a place that a client must wait for. */
	if (table->active_count >= manager->clients_max || table->active_count + table->cleanups >= CNRE_SESSIONS_MAX) {
		(void)snprintf(message, SESSION_MESSAGE_BYTES, "%u clients are attached already: raise --clients-max",
			       table->active_count);
		return -EAGAIN;
	}
	if (peer->uid != 0 && sessions_of(table, peer->uid) >= SESSIONS_PER_UID_MAX) {
		(void)snprintf(message, SESSION_MESSAGE_BYTES, "user %u has %u clients attached already", peer->uid,
			       SESSIONS_PER_UID_MAX);
		return -EAGAIN;
	}
	return 0;
}

static int check_hello(const struct cnre_wire_hello *hello, char *message)
{
	if ((hello->flags & ~HELLO_KNOWN_FLAGS) != 0) {
		(void)snprintf(message, SESSION_MESSAGE_BYTES, "attach flags 0x%x are not known to this manager",
			       hello->flags);
		return -EINVAL;
	}
	return 0;
}

static int create_segments(struct session *session)
{
	uint32_t layers = session->model->catalog->layer_count, objects = session->model->catalog->object_count;
	uint64_t channel_bytes = CNRE_CHANNEL_BYTES(layers);
	uint64_t ledger_bytes =
		cnre_size_align_up(sizeof(struct cnre_ledger) + (uint64_t)objects * sizeof(uint64_t), CNRE_PAGE_BYTES);
	int r;

	r = cnre_segment_create(&session->channel_segment, "cnre-channel", channel_bytes, CNRE_BACKING_4K, -1,
				CNRE_SEGMENT_CLIENT_WRITES);
	if (r < 0)
		return r;
	r = cnre_segment_create(&session->ledger_segment, "cnre-ledger", ledger_bytes, CNRE_BACKING_4K, -1,
				CNRE_SEGMENT_CLIENT_WRITES);
	if (r < 0) {
		cnre_segment_close(&session->channel_segment);
		return r;
	}
	session->channel = session->channel_segment.base;
	cnre_segment_fill_header(&session->channel->header, CNRE_SEGMENT_CHANNEL, channel_bytes);
	session->channel->session = session->number;
	session->channel->account_count = layers;
	session->channel->log_off = CNRE_CHANNEL_LOG_OFF;
	session->channel->accounts_off = CNRE_CHANNEL_ACCOUNTS_OFF;
	cnre_segment_publish(&session->channel->header);
	session->ledger = session->ledger_segment.base;
	cnre_segment_fill_header(&session->ledger->header, CNRE_SEGMENT_LEDGER, ledger_bytes);
	cnre_segment_publish(&session->ledger->header);
	return 0;
}

static void close_segments(struct session *session)
{
	cnre_segment_close(&session->channel_segment);
	cnre_segment_close(&session->ledger_segment);
}

/* From here on the session's leases count in every scan. */
static void enter(struct session *session)
{
	struct session_table *table = session->manager->sessions;

	table->by_slot[session->slot] = session;
	table->active[table->active_count++] = session;
	table->reserved_slabs += session->reserve_slabs;
	cnre_counter_set(&session->manager->counters->clients, table->active_count);
}

static void leave(struct session *session)
{
	struct session_table *table = session->manager->sessions;
	uint32_t i = 0;

	while (table->active[i] != session)
		i++;
	table->active[i] = table->active[--table->active_count];
	table->by_slot[session->slot] = NULL;
	table->reserved_slabs -= session->reserve_slabs;
	cnre_counter_set(&session->manager->counters->clients, table->active_count);
	reservation_apply(session->manager);
}

static int send_welcome(struct session *session)
{
	struct manager *manager = session->manager;
	struct cnre_wire_welcome welcome = {
		.session = session->number,
		/* [E1] relaxed: only this thread writes it. */
		.epoch = atomic_load_explicit(&manager->page->epoch, memory_order_relaxed),
		.reserve_slabs = session->reserve_slabs,
		.reserve_bytes = session->reserve_slabs * manager->window_bytes,
		.manager_pid = (uint32_t)getpid(),
	};
	const struct cnre_segment *readable[] = {&manager->page_segment, &manager->counters_segment,
						 &session->model->catalog_segment, &session->model->directory_segment};
	int fds[CNRE_FD_COUNT];
	uint32_t opened;
	int r = 0;

	for (opened = 0; opened < CNRE_COUNT_OF(readable) && r >= 0; opened++)
		r = fds[opened] = cnre_segment_reopen_readonly(readable[opened]);
	if (r >= 0) {
		fds[CNRE_FD_CHANNEL] = session->channel_segment.fd;
		fds[CNRE_FD_LEDGER] = session->ledger_segment.fd;
		cnre_wire_fill(&welcome.header, CNRE_WIRE_WELCOME, session->hello_id, sizeof welcome);
		r = cnre_wire_send(session->socket.fd, &welcome, sizeof welcome, fds, CNRE_FD_COUNT);
	}
	for (uint32_t i = 0; i < opened; i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
	return r;
}

static int watch(struct session *session)
{
	struct loop *loop = session->manager->loop;
	int r = session->socket.fd < 0 ? 0 : loop_add(loop, &session->socket, EPOLLIN | EPOLLRDHUP);

	if (r < 0)
		return r;
	r = session->process.fd < 0 ? 0 : loop_add(loop, &session->process, EPOLLIN);
	if (r < 0 && session->socket.fd >= 0)
		loop_remove(loop, &session->socket);
	return r;
}

static void unwatch(struct session *session)
{
	if (session->socket.fd >= 0)
		loop_remove(session->manager->loop, &session->socket);
	if (session->process.fd >= 0)
		loop_remove(session->manager->loop, &session->process);
}

/* A name is shown in logs, JSON and terminals: what is not plain ASCII becomes '?'. */
static void copy_name(char *to, const char *from)
{
	for (uint32_t i = 0; i < CNRE_NAME_BYTES - 1 && from[i] != '\0'; i++)
		to[i] = from[i] > 0x20 && from[i] < 0x7f ? from[i] : '?';
}

static struct session *allocate(struct manager *manager, const struct peer *peer, const struct cnre_wire_hello *hello,
				struct served_model *model, uint32_t slot, uint32_t slabs)
{
	struct session *session = calloc(1, sizeof *session);

	if (session == NULL)
		return NULL;
	session->manager = manager;
	session->model = model;
	session->peer = *peer;
	session->slot = slot;
	session->reserve_slabs = slabs;
	session->hello_id = hello->header.id;
	session->attached_ns = cnre_clock_now_ns();
	session->number = state_next_session(manager);
	copy_name(session->name, hello->name);
	session->socket = (struct loop_source){.fd = peer->socket, .ready = conversation_ready};
	session->process = (struct loop_source){.fd = peer->pidfd, .ready = conversation_process_ended};
	session->channel_segment.fd = session->ledger_segment.fd = -1;
	return session;
}

static void explain(int error, char *message)
{
	const char *advice = "end others, or see its log and limits";

	if (error == -EMFILE || error == -ENFILE)
		advice = "raise its LimitNOFILE";
	else if (error == -ENOSPC)
		advice = "no more descriptors can be kept for a restart: end others, or raise its LimitNOFILE (ulimit -n) and "
			 "FileDescriptorStoreMax";
	else if (error == -ETIMEDOUT)
		advice = "its keeper does not answer, and a client that is not kept could lose its leases: is it stopped?";
	(void)snprintf(message, SESSION_MESSAGE_BYTES, "the manager cannot serve one more client: %s: %s",
		       strerror(-error), advice);
}

int session_begin(struct manager *manager, const struct peer *peer, const struct cnre_wire_hello *hello,
		  char message[SESSION_MESSAGE_BYTES])
{
	struct served_model *model;
	struct session *session;
	uint32_t slot = 0, slabs = 0;
	int r;

	message[0] = '\0';
	r = check_hello(hello, message);
	if (r == 0)
		r = check_limits(manager, peer, message);
	if (r == 0)
		r = match_model(manager, hello, &model, message, SESSION_MESSAGE_BYTES);
	if (r == 0)
		r = find_slot(manager->sessions, &slot);
	if (r == 0 && ((hello->flags & HELLO_NO_EXPERTS) == 0 || hello->reserve_bytes > 0))
		r = reservation_grant(manager, peer, model, hello->reserve_bytes, &slabs, message,
				      SESSION_MESSAGE_BYTES);
	if (r < 0)
		return r;
	session = allocate(manager, peer, hello, model, slot, slabs);
	if (session == NULL) {
		(void)snprintf(message, SESSION_MESSAGE_BYTES, "the manager has no memory for one more client");
		return -ENOMEM;
	}
	r = create_segments(session);
	if (r < 0)
		goto drop;
	CNRE_CRASH_POINT("attach-segments");
	state_enter_session(manager, session);
	CNRE_CRASH_POINT("attach-entered-state");
	r = persist_session(manager, session);
	if (r < 0) {
		cnre_counter_add(&manager->counters->attaches_unkept, 1);
		goto leave_state;
	}
	CNRE_CRASH_POINT("attach-stored");
	enter(session);
	reservation_apply(manager);
	r = bell_add(manager->bell, session);
	if (r < 0)
		goto withdraw;
	r = watch(session);
	if (r < 0)
		goto remove_bell;
	CNRE_CRASH_POINT("attach-watched");
	r = send_welcome(session);
	if (r < 0)
		goto stop_watching;
	CNRE_CRASH_POINT("attach-welcomed");
	state_welcomed(manager, session);
	CNRE_CRASH_POINT("attach-welcomed");
	cnre_counter_add(&manager->counters->attaches, 1);
	if (cnre_log_allowed(&manager->sessions->log_limit, session->attached_ns))
		cnre_log(CNRE_LOG_INFO, "attach: %s (pid %d, uid %u) to %s as session %u, %u slabs reserved",
			 session->name, (int)peer->pid, peer->uid, model->catalog->name, session->number, slabs);
	return 0;

stop_watching:
	unwatch(session);
remove_bell:
	bell_remove(manager->bell, session);
withdraw:
	leave(session);
	persist_forget_session(manager, session);
leave_state:
	state_leave_session(manager, session);
	close_segments(session);
drop:
	free(session);
	explain(r, message);
	return r;
}

/* ---- adoption ---- */

static int take_part(struct manager *manager, uint32_t number, const char *what)
{
	char name[KEEP_NAME_BYTES];

	(void)snprintf(name, sizeof name, "c%u.%s", number, what);
	return store_take(manager->store, name);
}

static int map_part(struct manager *manager, const struct session *session, const char *what,
		    enum cnre_segment_kind kind, uint64_t bytes, struct cnre_segment *ret_segment)
{
	int fd = take_part(manager, session->number, what), r;

	if (fd < 0)
		return fd;
	r = cnre_segment_map(ret_segment, fd, kind, bytes, 1);
	if (r < 0) {
		(void)close(fd);
		return r;
	}
	ret_segment->fd = fd;
	return 0;
}

static int map_parts(struct manager *manager, struct session *session)
{
	const struct model_catalog *catalog = session->model->catalog;
	int r = map_part(manager, session, "chan", CNRE_SEGMENT_CHANNEL, CNRE_CHANNEL_BYTES(catalog->layer_count),
			 &session->channel_segment);

	if (r == 0)
		r = map_part(manager, session, "led", CNRE_SEGMENT_LEDGER,
			     sizeof(struct cnre_ledger) + (uint64_t)catalog->object_count * sizeof(uint64_t),
			     &session->ledger_segment);
	if (r < 0) {
		close_segments(session);
		return r;
	}
	session->channel = session->channel_segment.base;
	session->ledger = session->ledger_segment.base;
	/* [E4] relaxed: input; any value only decides where the ring is read on, and slots are the truth (R13). */
	session->ring_head = atomic_load_explicit(&session->channel->ring_tail, memory_order_relaxed) - CNRE_SLOTS;
	cnre_access_log_resume(cnre_access_log_of(session->channel), &session->log_reader);
	return 0;
}

/*
 * A manager that was killed between storing the socket and storing the pidfd left the first only. Without any pidfd its
 * hang-up is death, as where none could ever be had.
 */
static void find_process(struct session *session)
{
	if (session->peer.pidfd >= 0 || session->peer.socket < 0)
		return;
	if (peer_find_process(&session->peer, session->attached_ns) < 0 || session->peer.pidfd < 0)
		return;
	session->process.fd = session->peer.pidfd;
	persist_process(session->manager, session);
}

static struct session *allocate_adopted(struct manager *manager, uint32_t slot, uint32_t number)
{
	const struct cnre_state_session *entry = &manager->state->session[slot];
	struct session *session = calloc(1, sizeof *session);

	if (session == NULL)
		return NULL;
	session->manager = manager;
	session->model = &manager->model[entry->model];
	session->slot = slot;
	session->number = number;
	session->reserve_slabs = entry->reserve_slabs;
	session->hello_id = entry->hello_id;
	session->attached_ns = entry->attached_ns;
	memcpy(session->name, entry->name, sizeof session->name - 1);
	session->peer = (struct peer){.uid = entry->uid, .gid = entry->gid, .pid = (pid_t)entry->pid};
	session->peer.socket = take_part(manager, number, "sock");
	session->peer.pidfd = take_part(manager, number, "pid");
	if (session->peer.socket < 0)
		session->peer.socket = -1; /* it had hung up */
	if (session->peer.pidfd < 0)
		session->peer.pidfd = -1;
	find_process(session);
	session->socket = (struct loop_source){.fd = session->peer.socket, .ready = conversation_ready};
	session->process = (struct loop_source){.fd = session->peer.pidfd, .ready = conversation_process_ended};
	session->channel_segment.fd = session->ledger_segment.fd = -1;
	return session;
}

/*
 * The former manager may have died before WELCOME was sent, and the client would wait for it until its time-out; or just
 * after, and then it gets a second one, which it passes over.
 */
static void welcome_again(struct session *session)
{
	struct manager *manager = session->manager;

	if (manager->state->session[session->slot].welcomed || session->socket.fd < 0)
		return;
	if (send_welcome(session) == 0)
		state_welcomed(manager, session);
}

/*
 * A client that was welcomed may hold leases as long as it lives; where its ledger cannot be had, evictions would not see
 * them. So only these go: one whose attach was cut off before everything was stored, and so before WELCOME; and one that
 * wrote over the head of its own segments.
 */
static int may_be_dropped(const struct session *session, int error)
{
	int welcomed = (int)session->manager->state->session[session->slot].welcomed;

	return error == -EBADMSG || error == -EPROTO || (!welcomed && (error == -EPIPE || error == -ENOENT));
}

int session_adopt(struct manager *manager, uint32_t slot)
{
	/* [E5] relaxed: written by a dead process. */
	uint32_t number = atomic_load_explicit(&manager->state->session[slot].session, memory_order_relaxed);
	struct session *session;
	int r;

	if (manager->state->session[slot].model >= manager->model_count)
		return -EINVAL;
	session = allocate_adopted(manager, slot, number);
	if (session == NULL)
		return -ENOMEM;
	r = session->peer.socket < 0 && session->peer.pidfd < 0 ? -EPIPE : map_parts(manager, session);
	if (r < 0)
		goto drop;
	enter(session);
	r = kv_adopt_session(session);
	if (r < 0)
		goto withdraw;
	r = bell_add(manager->bell, session);
	if (r < 0)
		goto withdraw;
	r = watch(session);
	if (r == 0) {
		welcome_again(session);
		return 0;
	}
	bell_remove(manager->bell, session);
withdraw:
	kv_end_session(session);
	leave(session);
	close_segments(session);
drop:
	if (session->peer.socket >= 0)
		(void)close(session->peer.socket);
	if (session->peer.pidfd >= 0)
		(void)close(session->peer.pidfd);
	if (may_be_dropped(session, r)) {
		state_leave_session(manager,
				    session); /* first: an entry without descriptors is a client that was lost */
		persist_forget_session(manager, session);
	}
	free(session);
	return r;
}

void session_adopt_requests(struct manager *manager)
{
	for (uint32_t i = 0; i < manager->sessions->active_count; i++)
		channel_scan_wants(manager->sessions->active[i]);
}

/* ---- ending ---- */

static uint64_t at_most(uint64_t value, uint64_t limit)
{
	return value < limit ? value : limit;
}

static uint64_t account_word(const _Atomic uint64_t *word)
{
	/* [E2] relaxed: a statistic of the client, input. */
	return atomic_load_explicit(word, memory_order_relaxed);
}

static const struct cnre_account *accounts_of(const struct session *session)
{
	return (const void *)((const char *)session->channel + CNRE_CHANNEL_ACCOUNTS_OFF);
}

uint64_t session_layer_wait_ns(const struct session *session, uint32_t layer)
{
	return account_word(&accounts_of(session)[layer].wait_ns);
}

uint64_t session_layer_joins(const struct session *session, uint32_t layer)
{
	return account_word(&accounts_of(session)[layer].joins);
}

/* A client can write anything into its own accounts; what cannot be true is cut to what can. */
static void end_layer(const struct session *session, struct session_count *count)
{
	const struct cnre_account *account = &accounts_of(session)[count->layer];
	uint64_t life_ns = (uint64_t)(cnre_clock_now_ns() - session->attached_ns);
	uint64_t wait_most_ns = life_ns > UINT64_MAX / 1024 ? UINT64_MAX : life_ns * 1024; /* 1,024 threads */
	struct session_totals *layer = &count->in_layer;

	if (session->vram_ended != NULL)
		session_totals_add(layer, &session->vram_ended[count->layer]);
	layer->misses = at_most(account_word(&account->misses), layer->accesses);
	layer->joins = at_most(account_word(&account->joins), layer->misses);
	layer->failures = at_most(account_word(&account->failures), layer->accesses);
	layer->wait_ns = at_most(account_word(&account->wait_ns),
				 wait_most_ns - at_most(count->totals.wait_ns, wait_most_ns));
	session_totals_add(&count->totals, layer);
	if (count->by_layer != NULL)
		session_totals_add(&count->by_layer[count->layer], layer);
	count->in_layer = (struct session_totals){0};
	count->layer++;
}

static uint64_t ledger_word(const struct session *session, uint32_t object)
{
	/* [E3] relaxed: a statistic; only evictions need the seq_cst scan. */
	return atomic_load_explicit(&session->ledger->word[object], memory_order_relaxed);
}

/* Where the experts of a layer differ in size. */
static uint64_t count_bytes(const struct session *session, uint32_t first, uint32_t end)
{
	const struct model_catalog *catalog = session->model->catalog;
	uint64_t bytes = 0;

	for (uint32_t i = first; i < end; i++)
		bytes += CNRE_LEDGER_ACCESSES(ledger_word(session, i)) * catalog->shape[catalog->object[i].shape].payload_bytes;
	return bytes;
}

/* Likewise what VRAM served, for who has ledgers of it. */
static void count_vram(const struct session *session, struct session_count *count, uint32_t end)
{
	const struct model_catalog *catalog = session->model->catalog;
	uint64_t hits = 0, bytes = 0;

	for (uint32_t i = count->objects; i < end && vram_ledgers(session) > 0; i++) {
		uint64_t here = vram_accesses(session, i, &count->vram_leased);

		hits += here;
		bytes += here * catalog->shape[catalog->object[i].shape].payload_bytes;
	}
	count->in_layer.accesses += hits;
	count->in_layer.vram_hits += hits;
	count->in_layer.bytes += bytes;
	count->in_layer.vram_bytes += bytes;
}

/* Of one layer, up to before object `end`: millions of words, so sums are in registers until the end. */
static void count_words(const struct session *session, struct session_count *count, uint32_t end)
{
	const struct layer_counts *counts = session->manager == NULL ? NULL : session->manager->layer_counts;
	uint64_t payload_bytes = counts == NULL ? 0 : counts->layer[session->model->first_layer + count->layer].payload_bytes;
	uint64_t accesses = 0;
	uint32_t leased = 0;

	for (uint32_t i = count->objects; i < end; i++) {
		uint64_t word = ledger_word(session, i);

		accesses += CNRE_LEDGER_ACCESSES(word);
		leased += CNRE_LEDGER_LEASES(word) > 0;
	}
	count->in_layer.accesses += accesses;
	count->in_layer.bytes += payload_bytes > 0 ? accesses * payload_bytes : count_bytes(session, count->objects, end);
	count->leased += leased;
	count_vram(session, count, end);
	count->objects = end;
}

int session_count(const struct session *session, struct session_count *count, uint32_t words)
{
	const struct model_catalog *catalog = session->model->catalog;
	uint32_t objects = catalog->object_count;
	uint32_t share = words / (1 + vram_ledgers(session)) > 0 ? words / (1 + vram_ledgers(session)) : 1;
	uint32_t end = share < objects - count->objects ? count->objects + share : objects;

	while (count->layer < catalog->layer_count) {
		const struct model_layer *layer = &catalog->layer[count->layer];
		uint32_t layer_end = layer->first_object + layer->expert_count;

		if (layer->expert_count > 0)
			count_words(session, count, layer_end < end ? layer_end : end);
		if (layer->expert_count > 0 && layer_end > end)
			return 0;
		end_layer(session, count);
	}
	return 1;
}

static struct session *of_cleanup(struct worker_job *job)
{
	return (struct session *)((char *)job - offsetof(struct session, cleanup));
}

static void retire(const struct session *session, const struct session_totals *totals)
{
	struct manager *manager = session->manager;

	session_totals_add(&manager->sessions->retired, totals);
	metrics_session_ended(manager, session, totals);
	state_retire_vram(manager, totals);
	state_save_retired(manager);
}

void session_settle(struct session *session)
{
	struct layer_counts *counts = session->manager->layer_counts;
	struct session_count count = {.by_layer = counts == NULL ? NULL : &counts->ended[session->model->first_layer]};

	(void)session_count(session, &count, UINT32_MAX);
	retire(session, &count.totals);
	session->is_settled = 1;
}

static void clean_up(struct worker_job *job)
{
	struct session *session = of_cleanup(job);
	struct session_count count = {.objects = 0};

	if (!session->is_settled) {
		session->by_layer = count.by_layer =
			calloc(session->model->catalog->layer_count, sizeof *session->by_layer);
		(void)session_count(session, &count, UINT32_MAX);
	}
	session->totals = count.totals; /* zeros, where they are counted already */
	close_segments(session);
	if (session->peer.socket >= 0)
		(void)close(session->peer.socket);
	if (session->peer.pidfd >= 0)
		(void)close(session->peer.pidfd);
}

static void cleaned_up(struct worker_job *job)
{
	struct session *session = of_cleanup(job);

	retire(session, &session->totals);
	layer_counts_ended(session->manager, session->model, session->by_layer);
	free(session->by_layer);
	session->manager->sessions->cleanups--;
	session->feed = feed_client_close(session->feed);
	free(session->vram_ended);
	free(session);
}

/* For the probe only: how many leases ended with it; the segment stays until clean_up. */
static void probe_leases(const struct session *session)
{
	uint64_t leases = 0;

	if (!CNRE_PROBE_ATTACHED(lease_revoked))
		return;
	for (uint32_t i = 0; i < session->model->catalog->object_count; i++)
		/* [E6] relaxed: a statistic, of a client that may still write. */
		leases += CNRE_LEDGER_LEASES(atomic_load_explicit(&session->ledger->word[i], memory_order_relaxed));
	if (leases > 0)
		CNRE_PROBE(lease_revoked, session->number, (uint32_t)session->peer.pid, leases);
}

void session_end(struct session *session, int died)
{
	struct manager *manager = session->manager;

	if (cnre_log_allowed(&manager->sessions->log_limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_INFO, "%s: %s (pid %d), session %u", died ? "client ended" : "detach", session->name,
			 (int)session->peer.pid, session->number);
	channel_finish(session);
	kv_end_session(session);
	vram_end_session(session);
	survey_forget(&session->peer.question);
	unwatch(session);
	bell_remove(manager->bell, session);
	/* Off the scan list: its leases hold nothing any more. */
	leave(session);
	CNRE_CRASH_POINT("end-left");
	probe_leases(session);
	residency_forget_session(manager, session->slot);
	state_leave_session(manager, session);
	if (!session->is_settled && session->model->catalog->object_count <= SURVEY_WORDS_PER_TURN)
		session_settle(session); /* 40 us at most; a worker would leave it to a manager that may be killed meanwhile */
	persist_forget_session(manager, session);
	CNRE_CRASH_POINT("end-left-state");
	if (died)
		cnre_counter_add(&manager->counters->client_deaths, 1);
	if (session->socket.fd < 0)
		session->peer.socket = -1; /* closed when it hung up */
	session->cleanup = (struct worker_job){.run = clean_up, .done = cleaned_up};
	manager->sessions->cleanups++;
	manager->sessions->ended_count++;
	worker_submit(manager->worker, &session->cleanup);
}

int session_any_lease(const struct session_table *table, const struct served_model *model, uint32_t index)
{
	for (uint32_t i = 0; i < table->active_count; i++) {
		const struct session *session = table->active[i];

		if (session->model == model && CNRE_LEDGER_LEASES(cnre_ledger_scan(&session->ledger->word[index])) > 0)
			return 1;
	}
	return 0;
}

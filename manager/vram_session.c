/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's ledgers of devices: made when it opens one, in the scan list before they are passed, and gone some time after
 * its session.
 *
 * What a client leaves behind. A process may be killed while a kernel of it reads an expert, and a kernel ends only when the
 * driver destroys the process's context. The kernel closes a process's descriptors, and with them its contexts, before its
 * pidfd says that it ended; what a child inherited, or a driver does later, is why VRAM_SETTLE_NS are waited then. So a ledger
 * goes on counting after its session: its leases until then, if the process ended; and the arenas that it has open, since
 * freeing these under an importer is undefined. Where there is no pidfd, VRAM_BLIND_NS stand for its end. A process that lives
 * and whose session ended has let go of its leases, or has more than it may (R19): these do not count, and only a wrong
 * result of its own can come of it. Its open arenas count for as long as it lives and says so.
 */
#include "manager/vram_inner.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/message.h"
#include "base/size.h"
#include "shm/ledger.h"
#include "shm/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- looking ---- */

int vram_any_lease(const struct vram_table *table, uint32_t object)
{
	for (const struct vram_session *client = table->sessions; client != NULL; client = client->next)
		if (client->holds && CNRE_LEDGER_LEASES(cnre_ledger_scan(&client->ledger->word[object])) > 0)
			return 1;
	return 0;
}

int vram_any_open(const struct vram_device *device, uint32_t arena)
{
	for (uint32_t i = 0; i < device->vram->manager->model_count; i++)
		for (const struct vram_session *client = device->table[i].sessions; client != NULL; client = client->next)
			if (cnre_vram_is_open(client->ledger, arena))
				return 1;
	return 0;
}

static int has_open(const struct vram_session *client)
{
	for (uint32_t i = 0; i < CNRE_VRAM_ARENAS_MAX; i++)
		if (cnre_vram_is_open(client->ledger, i))
			return 1;
	return 0;
}

static uint64_t counted(const struct vram_session *client, uint32_t object, uint32_t *leased)
{
	/* [VS1] relaxed: a statistic; only evictions need the seq_cst scan. */
	uint64_t word = atomic_load_explicit(&client->ledger->word[object], memory_order_relaxed);

	*leased += CNRE_LEDGER_LEASES(word) > 0;
	return CNRE_LEDGER_ACCESSES(word);
}

uint64_t vram_accesses(const struct session *session, uint32_t object, uint32_t *leased)
{
	uint64_t accesses = 0;

	for (uint32_t i = 0; i < CNRE_VRAM_DEVICES_MAX && session->vram_count > 0; i++)
		if (session->vram[i] != NULL)
			accesses += counted(session->vram[i], object, leased);
	return accesses;
}

uint32_t vram_ledgers(const struct session *session)
{
	return session->vram_count;
}

/* ---- beginning ---- */

static int create_ledger(struct vram_session *client)
{
	uint64_t bytes = cnre_size_align_up(sizeof(struct cnre_vram_ledger) +
						    (uint64_t)client->table->model->catalog->object_count * sizeof(uint64_t),
					    CNRE_PAGE_BYTES);
	int r = cnre_segment_create(&client->segment, "cnre-vram-ledger", bytes, CNRE_BACKING_4K, -1, CNRE_SEGMENT_CLIENT_WRITES);

	if (r < 0)
		return r;
	client->ledger = client->segment.base;
	cnre_segment_fill_header(&client->ledger->header, CNRE_SEGMENT_VRAM_LEDGER, bytes);
	cnre_segment_publish(&client->ledger->header);
	return 0;
}

static int begin(struct session *session, struct vram_device *device)
{
	struct vram_session *client = calloc(1, sizeof *client);
	int r;

	if (client == NULL)
		return -ENOMEM;
	client->session = session;
	client->table = &device->table[session->model->number];
	client->segment.fd = client->pidfd = -1;
	client->holds = 1;
	r = create_ledger(client);
	if (r < 0) {
		free(client);
		return r;
	}
	client->next = client->table->sessions;
	client->table->sessions = client;
	session->vram[device->number] = client;
	session->vram_count++;
	device->session_count++;
	device->vram->wanted[session->model->number] = 1;
	vram_device_apply(device);
	return 0;
}

/* ---- ending ---- */

static void drop(struct vram_session *client)
{
	struct vram_session **link = &client->table->sessions;

	while (*link != client)
		link = &(*link)->next;
	*link = client->next;
	if (client->pidfd >= 0)
		(void)close(client->pidfd);
	cnre_segment_close(&client->segment);
	free(client);
}

static int has_ended(int pidfd)
{
	struct pollfd process = {.fd = pidfd, .events = POLLIN};

	return poll(&process, 1, 0) > 0;
}

static void leave(struct vram *vram, struct vram_session *client)
{
	const struct session *session = client->session;
	int is_gone = session->process.fd >= 0 && has_ended(session->process.fd);

	client->holds = is_gone || session->process.fd < 0;
	client->leaves_ns = cnre_clock_deadline_ns(is_gone ? VRAM_SETTLE_NS : VRAM_BLIND_NS);
	if (!is_gone && session->process.fd >= 0)
		client->pidfd = fcntl(session->process.fd, F_DUPFD_CLOEXEC, 0); /* none to be had: as one that never was */
	if (client->pidfd >= 0)
		client->leaves_ns = CNRE_NEVER;
	client->process = session->peer.pid;
	client->session = NULL;
	if (!client->holds && !has_open(client)) {
		drop(client);
		return;
	}
	client->next_leaving = vram->leaving;
	vram->leaving = client;
	vram->leaving_count++;
	vram->look_ns = 0;
}

/* All it did there, before the ledgers go: as long as making them took. Without memory it is not counted. */
static void add_up(struct session *session)
{
	const struct model_catalog *catalog = session->model->catalog;
	uint32_t leased = 0;

	session->vram_ended = calloc(catalog->layer_count, sizeof *session->vram_ended);
	for (uint32_t i = 0; i < catalog->object_count && session->vram_ended != NULL; i++) {
		struct session_totals *layer = &session->vram_ended[catalog->object[i].layer];
		uint64_t hits = vram_accesses(session, i, &leased), bytes = hits * catalog->shape[catalog->object[i].shape].payload_bytes;

		layer->accesses += hits;
		layer->vram_hits += hits;
		layer->bytes += bytes;
		layer->vram_bytes += bytes;
	}
}

void vram_end_session(struct session *session)
{
	struct vram *vram = session->manager->vram;

	if (session->vram_count == 0)
		return;
	add_up(session);
	for (uint32_t i = 0; i < CNRE_VRAM_DEVICES_MAX; i++) {
		struct vram_device *device = &vram->device[i];

		if (session->vram[i] == NULL)
			continue;
		leave(vram, session->vram[i]);
		session->vram[i] = NULL;
		if (--device->session_count == 0)
			device->abandoned_ns = cnre_clock_now_ns();
	}
	session->vram_count = 0;
}

int vram_sessions_look(struct vram *vram)
{
	struct vram_session **link = &vram->leaving;
	int64_t now_ns = cnre_clock_now_ns();
	int went = 0;

	if (vram->leaving == NULL || now_ns < vram->look_ns)
		return 0;
	vram->look_ns = now_ns + VRAM_LOOK_NS;
	while (*link != NULL) {
		struct vram_session *client = *link;

		if (client->pidfd >= 0 && has_ended(client->pidfd)) {
			(void)close(client->pidfd);
			client->pidfd = -1;
			client->leaves_ns = now_ns + VRAM_SETTLE_NS;
		}
		if (now_ns < client->leaves_ns && (client->pidfd < 0 || has_open(client))) {
			link = &client->next_leaving;
			continue;
		}
		*link = client->next_leaving;
		vram->leaving_count--;
		drop(client);
		went = 1;
	}
	return went;
}

void vram_sessions_close(struct vram *vram)
{
	while (vram->leaving != NULL) {
		struct vram_session *client = vram->leaving;

		vram->leaving = client->next_leaving;
		drop(client);
	}
	vram->leaving_count = 0;
}

/* ---- more than it may have ---- */

/* As reservation.c counts: words with a lease that are the same in two looks were leased between them, all at one time. */
static uint32_t surely_held(const struct vram_session *client, uint64_t *seen)
{
	uint32_t count = client->table->model->catalog->object_count, held = 0;

	for (uint32_t i = 0; i < count; i++)
		seen[i] = cnre_ledger_scan(&client->ledger->word[i]);
	for (uint32_t i = 0; i < count; i++)
		held += CNRE_LEDGER_LEASES(seen[i]) > 0 && cnre_ledger_scan(&client->ledger->word[i]) == seen[i];
	return held;
}

static void enforce_on(struct session *session)
{
	uint64_t *seen = calloc(session->model->catalog->object_count, sizeof *seen);
	uint32_t held = 0;

	for (uint32_t i = 0; i < CNRE_VRAM_DEVICES_MAX && seen != NULL; i++)
		if (session->vram[i] != NULL)
			held += surely_held(session->vram[i], seen);
	free(seen);
	if (held <= session->reserve_slabs)
		return;
	cnre_log(CNRE_LOG_WARNING, "%s (pid %d, uid %u) leases %u experts in VRAM, more than its reservation of %u: its session is ended",
		 session->name, (int)session->peer.pid, session->peer.uid, held, session->reserve_slabs);
	session_end(session, 1);
}

/* One client a look, in turn: each of them is looked at while somebody's leases are in the way. */
void vram_sessions_enforce(struct vram *vram)
{
	struct session_table *table = vram->manager->sessions;

	for (uint32_t i = 0; i < CNRE_SESSIONS_MAX; i++) {
		struct session *session = table->by_slot[vram->enforce_slot++ % CNRE_SESSIONS_MAX];

		if (session == NULL || session->vram_count == 0)
			continue;
		enforce_on(session);
		return;
	}
}

/* ---- messages ---- */

static int find_device(const struct vram *vram, const unsigned char *uuid, struct vram_device **ret_device)
{
	for (uint32_t i = 0; i < vram->device_count; i++) {
		struct gpu_device_status status;

		gpu_get_status(vram->gpu, i, &status);
		*ret_device = &vram->device[i];
		if (memcmp(status.uuid, uuid, sizeof status.uuid) == 0)
			return 0;
	}
	return -ENODEV;
}

/* Of processes in other namespaces of pids nothing tells one from another: these have the whole table together. */
static uint32_t leaving_of(const struct vram *vram, pid_t process)
{
	uint32_t count = 0;

	for (const struct vram_session *client = vram->leaving; client != NULL; client = client->next_leaving)
		count += process > 0 && client->process == process;
	return count;
}

static int open_device(struct session *session, struct vram_device *device, char message[VRAM_MESSAGE_BYTES])
{
	struct vram *vram = device->vram;
	int r = 0;

	if (session->vram[device->number] != NULL)
		return 0; /* the same again */
	if (leaving_of(vram, session->peer.pid) >= VRAM_LEAVING_OF_ONE)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -EAGAIN,
				    "process %d ended %u sessions and has VRAM of theirs open still: close it, or end the process",
				    (int)session->peer.pid, VRAM_LEAVING_OF_ONE);
	if (vram->leaving_count >= VRAM_LEAVING_MAX)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -EAGAIN, "%u clients that ended have VRAM open still: ask again later",
				    vram->leaving_count);
	if (!device->is_open)
		r = vram_tables_open(device);
	if (r == 0)
		r = begin(session, device);
	return r < 0 ? cnre_message(message, VRAM_MESSAGE_BYTES, r, "the device cannot be opened for one more client: %s", strerror(-r)) : 0;
}

static int open_for(struct session *session, const struct cnre_wire_vram_open *asked, struct vram_device **ret_device,
		    char message[VRAM_MESSAGE_BYTES])
{
	struct vram *vram = session->manager->vram;
	int r;

	if (vram == NULL)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -ENODEV, "this manager uses no GPU: start it with --vram");
	r = vram_trust_check(vram, session, message);
	if (r < 0)
		return r;
	if (vram->tier == NULL)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -ENODEV, "this manager uses no GPU: %.200s", vram->fault);
	if (find_device(vram, asked->uuid, ret_device) < 0)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -ENODEV,
				    "the manager does not use that GPU: see cnrectl status, --vram-devices, and what its container shows it");
	if ((*ret_device)->is_lost)
		return cnre_message(message, VRAM_MESSAGE_BYTES, -ENODEV, "that GPU is lost: see cnrectl status");
	return open_device(session, *ret_device, message);
}

static int send_opened(struct session *session, uint32_t id, const struct vram_device *device, int status, const char *message)
{
	struct cnre_wire_vram_opened answer = {.status = status};
	int fds[CNRE_VRAM_FD_COUNT], count = 0, r;

	(void)snprintf(answer.message, sizeof answer.message, "%s", message);
	if (status == 0) {
		const struct vram_session *client = session->vram[device->number];

		fds[CNRE_VRAM_FD_DIRECTORY] = cnre_segment_reopen_readonly(&client->table->segment);
		fds[CNRE_VRAM_FD_LEDGER] = client->segment.fd;
		fds[CNRE_VRAM_FD_EXPORTER] = device->vram->pidfd;
		answer.device = device->number;
		answer.status = fds[CNRE_VRAM_FD_DIRECTORY] < 0 ? fds[CNRE_VRAM_FD_DIRECTORY] : 0;
		count = answer.status < 0 ? 0 : CNRE_VRAM_FD_COUNT;
	}
	cnre_wire_fill(&answer.header, CNRE_WIRE_VRAM_OPENED, id, sizeof answer);
	r = cnre_wire_send(session->socket.fd, &answer, sizeof answer, fds, (size_t)count);
	if (count > 0)
		(void)close(fds[CNRE_VRAM_FD_DIRECTORY]);
	return r;
}

int vram_answer(struct session *session, const void *buffer, int received_bytes)
{
	const struct cnre_wire_vram_open *asked = buffer;
	char message[VRAM_MESSAGE_BYTES] = "";
	struct vram_device *device = NULL;
	int r = session->peer.question.link != NULL || cnre_wire_has_unread(session->socket.fd) ? -EAGAIN : 0;

	if (cnre_wire_expect(buffer, received_bytes, CNRE_WIRE_VRAM_OPEN, sizeof *asked) < 0)
		return 0;
	if (r == 0)
		r = open_for(session, asked, &device, message);
	if (r < 0 && message[0] != '\0' && cnre_log_allowed(&session->manager->sessions->log_limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_NOTICE, "vram: %s (pid %d, uid %u): %s", session->name, (int)session->peer.pid, session->peer.uid,
			 message);
	r = send_opened(session, asked->header.id, device, r, message);
	return r < 0 ? r : 1;
}

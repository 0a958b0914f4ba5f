/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of attached clients. A client that hangs up but lives is "disconnected" (R11): a daemonising program closed
 * its descriptors, and its mapped leases go on being good. Every answer is sent without waiting; a client that asks
 * without reading its answers gets no more descriptors (R27), fills its own socket and is cut off.
 */
#include "manager/conversation.h"

#include "manager/client_policy.h"
#include "manager/control.h"
#include "manager/kv.h"
#include "manager/persist.h"
#include "manager/pool.h"
#include "manager/session.h"
#include "manager/state.h"
#include "manager/vram.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SEGMENTS_PER_MESSAGE 100u

static void hang_up(struct session *session)
{
	if (session->process.fd < 0) {
		session_end(session, 1);
		return;
	}
	survey_forget(&session->peer.question);
	loop_remove(session->manager->loop, &session->socket);
	persist_forget_socket(session->manager, session);
	(void)close(session->socket.fd);
	session->socket.fd = session->peer.socket = -1;
}

/* Descriptors of live segments from *first on; a number that was given back ends the run, or is passed over at its start. */
static uint32_t collect_segments(struct manager *manager, uint32_t *first, uint32_t total, int *fds)
{
	uint32_t count = 0;

	while (*first < total && pool_segment(manager->pool, *first) == NULL)
		(*first)++;
	while (count < SEGMENTS_PER_MESSAGE && *first + count < total) {
		const struct cnre_segment *segment = pool_segment(manager->pool, *first + count);
		int fd = segment == NULL ? -ENOENT : cnre_segment_reopen_readonly(segment);

		if (fd < 0)
			break; /* given back, or no descriptor free now: the client asks on from here */
		fds[count++] = fd;
	}
	return count;
}

static int answer_segments(struct session *session, const struct cnre_wire_segments *asked)
{
	struct manager *manager = session->manager;
	struct pool_status status;
	struct cnre_wire_segments answer = {.first = asked->first};
	int fds[SEGMENTS_PER_MESSAGE];
	int r;

	pool_get_status(manager->pool, &status);
	answer.total = status.segments_made;
	if (session->peer.question.link != NULL || cnre_wire_has_unread(session->socket.fd))
		answer.status = -EAGAIN;
	else
		answer.count = collect_segments(manager, &answer.first, answer.total, fds);
	cnre_wire_fill(&answer.header, CNRE_WIRE_SEGMENTS, asked->header.id, sizeof answer);
	r = cnre_wire_send(session->socket.fd, &answer, sizeof answer, fds, answer.count);
	for (uint32_t i = 0; i < answer.count; i++)
		(void)close(fds[i]);
	return r;
}

/*
 * The client has unmapped everything. Out of state and store first: killed after the answer, nobody would ever end it.
 * Then the answer: the session and its socket go with session_end.
 */
static void answer_detach(struct session *session, uint32_t id)
{
	struct cnre_wire_detach answer;

	state_leave_session(session->manager, session);
	session_settle(session);
	persist_forget_session(session->manager, session);
	cnre_wire_fill(&answer.header, CNRE_WIRE_DETACH, id, sizeof answer);
	(void)cnre_wire_send(session->socket.fd, &answer, sizeof answer, NULL, 0); /* it may be gone already */
	session_end(session, 0);
}

static int answer_other(struct session *session, const char *buffer, int received_bytes)
{
	int r = vram_answer(session, buffer, received_bytes);

	if (r == 0)
		r = kv_answer(session, buffer, received_bytes);
	return r == 0 ? -EBADMSG : r;
}

static void converse(struct session *session)
{
	_Alignas(8) char buffer[CNRE_WIRE_MESSAGE_MAX];
	struct cnre_wire_header header;
	int r = cnre_wire_receive(session->socket.fd, buffer, NULL, NULL);

	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		hang_up(session);
		return;
	}
	memcpy(&header, buffer, sizeof header);
	if (cnre_wire_expect(buffer, r, CNRE_WIRE_DETACH, sizeof(struct cnre_wire_detach)) == 0) {
		answer_detach(session, header.id);
		return;
	}
	if (cnre_wire_expect(buffer, r, CNRE_WIRE_SEGMENTS, sizeof(struct cnre_wire_segments)) == 0)
		r = answer_segments(session, (const struct cnre_wire_segments *)buffer);
	else if (cnre_wire_expect(buffer, r, CNRE_WIRE_CONTROL, sizeof(struct cnre_wire_control)) == 0)
		r = control_answer(session->manager, &session->peer, (const struct cnre_wire_control *)buffer, -1);
	else if (cnre_wire_expect(buffer, r, CNRE_WIRE_POLICY, sizeof(struct cnre_wire_policy)) == 0)
		r = client_policy_answer(session, (const struct cnre_wire_policy *)buffer);
	else
		r = answer_other(session, buffer, r);
	if (r < 0)
		hang_up(session);
}

void conversation_ready(struct loop_source *source, uint32_t events)
{
	struct session *session = (struct session *)((char *)source - offsetof(struct session, socket));

	if ((events & EPOLLIN) == 0)
		hang_up(session);
	else if (!control_must_wait(session->manager, source->fd))
		converse(session);
}

void conversation_process_ended(struct loop_source *source, uint32_t events)
{
	(void)events;
	session_end((struct session *)((char *)source - offsetof(struct session, process)), 1);
}

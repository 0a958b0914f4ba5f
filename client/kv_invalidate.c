/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_kv_invalidate: the manager forgets an identity's blocks; asked on the socket, since it is rare and must be heard. */
#include "base/clock.h"
#include "client/connection.h"
#include "client/kv.h"

#include <string.h>

/* Connection's lock held. */
static int ask(const struct cnre_kv *kv, int64_t deadline_ns)
{
	struct cnre_wire_kv_invalidate message = {.number = kv->space->number};
	struct cnre_wire_kv_invalidate told;
	struct cnre_answer answer;
	int r;

	memcpy(message.root, kv->root, sizeof message.root);
	r = cnre_connection_ask(kv->client, &message, sizeof message, CNRE_WIRE_KV_INVALIDATE, CNRE_WIRE_KV_INVALIDATE,
				sizeof told, deadline_ns, &answer);
	if (r < 0)
		return r;
	memcpy(&told, answer.message, sizeof told);
	cnre_connection_close_fds(&answer);
	return told.status;
}

int cnre_kv_invalidate(struct cnre_kv *kv)
{
	int64_t deadline_ns = cnre_clock_deadline_ns(CNRE_KV_ANSWER_NS);
	int r = cnre_kv_check(kv);

	if (r == 0)
		r = cnre_connection_lock(kv->client, deadline_ns);
	if (r < 0)
		return r;
	r = ask(kv, deadline_ns);
	cnre_connection_unlock(kv->client);
	return r;
}

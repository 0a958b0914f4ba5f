/* SPDX-License-Identifier: Apache-2.0 */
/* cnre_set_policy: a wish that the manager may refuse; asked on the socket, since it is rare and must be heard. */
#include "base/clock.h"
#include "client/connection.h"

#include <string.h>

#define POLICY_ANSWER_NS (30 * CNRE_NS_PER_S)

/* Connection's lock held. */
static int ask(struct cnre *client, const char *name, int64_t deadline_ns)
{
	struct cnre_wire_policy message = {.status = 0}, told;
	struct cnre_answer answer;
	int r;

	memcpy(message.name, name, strlen(name)); /* shorter than the field */
	r = cnre_connection_ask(client, &message, sizeof message, CNRE_WIRE_POLICY, CNRE_WIRE_POLICY, sizeof told,
				deadline_ns, &answer);
	if (r < 0)
		return r;
	memcpy(&told, answer.message, sizeof told);
	cnre_connection_close_fds(&answer);
	return told.status > 0 ? -EBADMSG : told.status;
}

int cnre_set_policy(struct cnre *client, const char *name)
{
	int64_t deadline_ns = cnre_clock_deadline_ns(POLICY_ANSWER_NS);
	int r = cnre_client_check(client);

	if (r < 0)
		return r;
	if (name == NULL || name[0] == '\0')
		return -EINVAL;
	if (strlen(name) >= CNRE_NAME_BYTES)
		return -ENOENT; /* no policy has such a name */
	r = cnre_connection_lock(client, deadline_ns);
	if (r < 0)
		return r;
	r = ask(client, name, deadline_ns);
	cnre_connection_unlock(client);
	return r;
}

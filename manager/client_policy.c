/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that ask for a policy; see client_policy.h. A policy is everybody's, so by default only who may administer the
 * manager chooses it, with cnrectl. Several engines that are started alike ask for the same one: that is no change, and
 * is never refused. A change makes a new policy of all residents, so clients get one a second between them.
 */
#include "manager/client_policy.h"

#include "base/clock.h"
#include "base/log.h"
#include "manager/control.h"
#include "manager/residency.h"
#include "manager/settings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CHANGE_PAUSE_NS CNRE_NS_PER_S

static int may_choose(const struct session *session)
{
	switch (session->manager->settings->client_policy) {
	case SETTINGS_CLIENT_POLICY_ALLOW:
		return 1;
	case SETTINGS_CLIENT_POLICY_OWN:
		return peer_may_administer(&session->peer);
	default:
		return 0;
	}
}

static int change(struct session *session, const char *name)
{
	struct manager *manager = session->manager;
	int64_t now_ns = cnre_clock_now_ns();
	char who[CNRE_NAME_BYTES + 64];
	int r;

	if (manager->client_policy_ns != 0 && now_ns - manager->client_policy_ns < CHANGE_PAUSE_NS)
		return -EAGAIN;
	(void)snprintf(who, sizeof who, "%s (pid %d, uid %u)", session->name, (int)session->peer.pid,
		       session->peer.uid);
	r = control_set_policy(manager, name, who);
	if (r == 0)
		manager->client_policy_ns = now_ns;
	return r;
}

static int decide(struct session *session, const char *name)
{
	if (strcmp(name, residency_policy_name(session->manager)) == 0)
		return 0;
	if (may_choose(session))
		return change(session, name);
	if (cnre_log_allowed(&session->manager->sessions->log_limit, cnre_clock_now_ns()))
		cnre_log(CNRE_LOG_NOTICE,
			 "%s (pid %d, uid %u) asks for another policy, which --client-policy refuses: set it with cnrectl policy",
			 session->name, (int)session->peer.pid, session->peer.uid);
	return -EPERM;
}

int client_policy_answer(struct session *session, const struct cnre_wire_policy *asked)
{
	struct cnre_wire_policy answer = {.status = -EINVAL};

	memcpy(answer.name, asked->name, sizeof answer.name); /* looked at once */
	if (answer.name[0] != '\0' && memchr(answer.name, '\0', sizeof answer.name) != NULL)
		answer.status = decide(session, answer.name);
	cnre_wire_fill(&answer.header, CNRE_WIRE_POLICY, asked->header.id, sizeof answer);
	return cnre_wire_send(session->socket.fd, &answer, sizeof answer, NULL, 0);
}

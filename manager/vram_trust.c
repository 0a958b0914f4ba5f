/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which clients may have a device open. CUDA knows no mapping that only reads: whoever imported an arena can change what
 * every other client reads there. So it is a matter of trust, as --vram-trust says, and not of having found the socket.
 */
#include "manager/vram_inner.h"

#include "base/message.h"
#include "manager/settings.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define GROUPS_MAX 256u /* of one peer */

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59 /* Linux 4.13 */
#endif

/* The kernel keeps the groups that the peer had when it connected. */
static int has_group(const struct session *session, gid_t group)
{
	gid_t groups[GROUPS_MAX];
	socklen_t bytes = sizeof groups;

	if (session->peer.gid == group)
		return 1;
	if (session->socket.fd < 0 || getsockopt(session->socket.fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
		return 0;
	for (size_t i = 0; i < bytes / sizeof groups[0]; i++)
		if (groups[i] == group)
			return 1;
	return 0;
}

int vram_trust_check(const struct vram *vram, const struct session *session, char message[VRAM_MESSAGE_BYTES])
{
	int is_trusted = peer_may_administer(&session->peer) || vram->trust == SETTINGS_VRAM_TRUST_ALL;

	if (!is_trusted && vram->trust == SETTINGS_VRAM_TRUST_GROUP)
		is_trusted = has_group(session, vram->group);
	if (is_trusted)
		return 0;
	return cnre_message(message, VRAM_MESSAGE_BYTES, -EACCES,
			    "user %u is not trusted with VRAM, which a client could write to: run it as user %u, or start the manager with --vram-trust %s",
			    session->peer.uid, geteuid(), vram->trust == SETTINGS_VRAM_TRUST_GROUP ? "all" : "group or all");
}

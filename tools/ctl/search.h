/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which manager is meant. A path that was given (--socket, $CNRE_SOCKET) is the only one tried. Otherwise the system's
 * manager, then those of this user: *.sock in $XDG_RUNTIME_DIR/cnre, /run/user/UID/cnre, /tmp/cnre-UID.
 */
#ifndef CNRE_TOOLS_CTL_SEARCH_H
#define CNRE_TOOLS_CTL_SEARCH_H

#include "tools/ctl/verb.h"

#include <sys/un.h>

#define SEARCH_SYSTEM_SOCKET "/run/cnre/managerd.sock"
#define SEARCH_PATH_BYTES sizeof(((struct sockaddr_un *)0)->sun_path)
#define SEARCH_SOCKETS_MAX 32 /* of this user, looked at in one search */

struct search_places {
	const char *given;                /* the only one, or NULL */
	const char *system;
	const char *user[3];              /* directories; NULL: left out */
};

/* Where this user's are, by the environment; given NULL: what $CNRE_SOCKET says. The texts live as long as the program. */
void search_fill(struct search_places *ret_places, const char *given);

/*
 * search_connect - the socket of the one manager that answers
 *
 * @ret_path   its path, SEARCH_PATH_BYTES; set on success only
 * @message    set on failure: what was looked at and what to do
 *
 * A directory of the user counts only if it belongs to the user and nobody else may write to it: a stranger's socket in
 * /tmp is never asked.
 * Returns:  a connected socket, or -ENOENT (none), -ENOTUNIQ (several of this user), or why the given one failed.
 */
int search_connect(const struct search_places *places, char *ret_path, char message[CTL_MESSAGE_BYTES]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mappings of a client: the fixed segments that come with WELCOME, and the pool segments, of which new ones may
 * appear while it runs. Every mapping is MADV_DONTFORK (shm/segment.h). A pool segment that the manager gives back
 * stays mapped until detach; its number is not used again in this epoch (R18).
 */
#ifndef CNRE_CLIENT_MAP_H
#define CNRE_CLIENT_MAP_H

#include "client/connection.h"

/* Maps the fixed segments, checks the catalog and fills the pointers and sizes of *client. fds stay the caller's. */
int cnre_map_fixed(struct cnre *client, const int *fds);

/* Maps every pool segment that exists now. */
int cnre_map_pool(struct cnre *client, int64_t deadline_ns);

/*
 * The base of one pool segment, mapped now if it was not. Takes the connection's lock. 0, -ETIMEDOUT (at least
 * CNRE_ANSWER_MIN_NS later), -EBADMSG (the manager has no such segment), -EPIPE, -ENOMEM, …
 */
int cnre_map_pool_segment(struct cnre *client, uint32_t segment, int64_t timeout_ns, const char **ret_base);

/*
 * One segment of a pool, the experts' or a namespace's: keeps base and size of its mapping; the descriptor is not needed any
 * more. Connection's lock held. 0, also where it is mapped already, -EBADMSG, -ENOMEM, …
 */
int cnre_map_segment(struct cnre_pool_map *map, int fd);
/* Unmaps `count` of them; no other call runs. */
void cnre_map_segments_done(struct cnre_pool_map *map, uint32_t count);

/* Unmaps everything but the page, which shows a restart to the last request of the session. */
void cnre_map_done(struct cnre *client);
void cnre_map_page_done(struct cnre *client);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* See homes.h. */
#include "tools/route/homes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static uint32_t find(const struct homes *homes, const char *id)
{
	uint32_t i = 0;

	while (i < HOMES_MAX && (id[0] == '\0' || strcmp(homes->home[i].id, id) != 0))
		i++;
	return i;
}

int homes_find(const struct homes *homes, const char *id)
{
	uint32_t i = find(homes, id);

	return i < HOMES_MAX ? (int)homes->home[i].engine : -ENOENT;
}

void homes_set(struct homes *homes, const char *id, uint32_t engine)
{
	uint32_t i = find(homes, id);

	if (id[0] == '\0')
		return;
	if (i == HOMES_MAX) {
		i = homes->next;
		homes->next = (homes->next + 1) % HOMES_MAX;
		(void)snprintf(homes->home[i].id, sizeof homes->home[i].id, "%s", id);
	}
	homes->home[i].engine = engine;
}

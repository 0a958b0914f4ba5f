/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a model's shards lie, from --model and --dir: what is asked of a catalog, what may not be, and what is said about it.
 * How shards are found there is base/places.h.
 */
#ifndef CNRE_MANAGER_SOURCE_H
#define CNRE_MANAGER_SOURCE_H

#include "model/catalog.h"

struct settings;

/* Points into the settings. */
struct model_source source_of(const struct settings *settings, const char *directory);

/*
 * A further directory with shards beside each other may serve one model only: whose would they be? With several models each
 * has a folder there with the name of its own directory. 0, or -EINVAL and what to do, or what cnre_places_open returns.
 */
int source_check(const struct model_source *source, uint32_t model_count, char *message, size_t message_bytes);

/* To the log, once: what each further directory gives, and what it has in vain. */
void source_say(const struct model_catalog *catalog);

#endif

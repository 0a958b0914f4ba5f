/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/picture.c: a sample becomes numbers and rates; what is no sample is refused, whatever it is. */
#include "tools/top/picture.h"

#include "tests/support/top_sample.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char message[TOP_MESSAGE_BYTES];

static struct picture *fill(json_t *sample, const struct picture *before, int *ret_status)
{
	struct picture *picture = calloc(1, sizeof *picture);

	*ret_status = picture_fill(sample, before, picture, message);
	json_decref(sample);
	return picture;
}

static struct picture *picture_of(int n, const struct picture *before)
{
	int r;
	struct picture *picture = fill(top_sample_make(n), before, &r);

	cr_assert_eq(r, 0, "%s", message);
	return picture;
}

Test(top_picture, the_first_sample_has_totals_and_no_rates)
{
	struct picture *picture = picture_of(2, NULL);

	cr_expect_str_eq(picture->model, "tiny");
	cr_expect_eq(picture->accesses, 200);
	cr_expect_eq(picture->interval_s, 0);
	cr_expect_lt(picture->hit_share, 0);
	cr_expect_lt(picture->client[0].hit_share, 0);
	cr_expect_lt(picture->drive[0].read_s, 0);
	cr_expect_eq(picture->expert_count, 12);
	free(picture);
}

Test(top_picture, rates_are_what_came_between_two_samples_by_their_own_clock)
{
	struct picture *before = picture_of(2, NULL), *picture = picture_of(4, before);

	cr_expect_float_eq(picture->interval_s, 2, 1e-9);
	cr_expect_float_eq(picture->lookups_s, 100, 1e-9);
	cr_expect_float_eq(picture->hit_share, 0.75, 1e-9);
	cr_expect_float_eq(picture->wait_s, 1, 1e-9);
	cr_expect_float_eq(picture->tokens_s, 30, 1e-9);
	cr_expect_float_eq(picture->passes_s, 10, 1e-9);
	cr_expect_float_eq(picture->client[1].wait_s, 1, 1e-9);
	cr_expect_float_eq(picture->drive[0].bytes_s, 2e6, 1e-3);
	cr_expect_float_eq(picture->drive[0].read_s, 0.25, 1e-9);
	free(before);
	free(picture);
}

Test(top_picture, a_manager_that_was_restarted_has_no_rates)
{
	struct picture *before = picture_of(9, NULL), *picture = picture_of(1, before);

	cr_expect_eq(picture->interval_s, 0);
	cr_expect_eq(picture->lookups_s, 0);
	free(before);
	free(picture);
}

Test(top_picture, heat_levels_are_of_the_hottest_and_only_what_was_never_used_is_0)
{
	struct picture *picture = picture_of(1, NULL);

	cr_expect_eq(picture_heat_level(picture, 0), 0);
	cr_expect_eq(picture_heat_level(picture, 1), 1);
	cr_expect_eq(picture_heat_level(picture, 2), 9);
	cr_expect_eq(picture_heat_level(picture, 3), 4);
	picture->heat_most = PICTURE_HEAT_MAX;
	cr_expect_eq(picture_heat_level(picture, 1), 1, "used once is never as never used");
	free(picture);
}

/* The n-th layer's member replaced. */
static json_t *with_layer(const char *key, json_t *value)
{
	json_t *sample = top_sample_make(1);

	(void)json_object_set_new(
		json_array_get(json_object_get(json_object_get(sample, "experts"), "layers"), 0), key, value);
	return sample;
}

Test(top_picture, hostile_layers_are_ebadmsg)
{
	json_t *const samples[] = {
		with_layer("state", json_string("rrr..")),          /* an expert is missing */
		with_layer("heat", json_string("0194100")),         /* one too many */
		with_layer("heat", json_string("01941x")),          /* more than 32 digits */
		with_layer("heat", json_string("01941\xc3\xbf")),   /* not a digit at all */
		with_layer("heat", json_null()),
		with_layer("state", json_string("rrrrr\n")),
		with_layer("experts", json_integer(0x100000006)),   /* 6, in 32 bits */
		with_layer("experts", json_integer(-6)),
		with_layer("resident", json_integer(7)),
		with_layer("layer", json_string("3")),
	};

	for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
		int r;
		struct picture *picture = fill(samples[i], NULL, &r);

		cr_expect_eq(r, -EBADMSG, "%zu", i);
		free(picture);
	}
}

Test(top_picture, a_member_that_is_missing_or_of_another_type_is_ebadmsg_with_its_name)
{
	static const char *const keys[] = {"stats", "clients", "drives", "experts"};

	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		json_t *without = top_sample_make(1), *wrong = top_sample_make(1);
		int r;

		(void)json_object_del(without, keys[i]);
		free(fill(without, NULL, &r));
		cr_expect_eq(r, -EBADMSG, "%s", keys[i]);
		cr_expect_not_null(strstr(message, keys[i]), "%s", message);
		(void)json_object_set_new(wrong, keys[i], json_array());
		free(fill(wrong, NULL, &r));
		cr_expect_eq(r, -EBADMSG, "%s", keys[i]);
	}
}

static json_t *many(const char *key, const char *list, int count)
{
	json_t *sample = top_sample_make(1), *of = json_object_get(sample, key);
	json_t *first = json_array_get(json_object_get(of, list), 0), *array = json_array();

	for (int i = 0; i < count; i++)
		(void)json_array_append(array, first);
	(void)json_object_set_new(of, list, array);
	return sample;
}

Test(top_picture, more_than_fits_is_cut_and_said)
{
	int r;
	struct picture *picture = fill(many("clients", "clients", PICTURE_CLIENTS_MAX + 5), NULL, &r);

	cr_expect_eq(r, 0);
	cr_expect_eq(picture->client_count, PICTURE_CLIENTS_MAX);
	free(picture);
	picture = fill(many("drives", "drives", PICTURE_DRIVES_MAX + 5), NULL, &r);
	cr_expect_eq(r, 0);
	cr_expect_eq(picture->drive_count, PICTURE_DRIVES_MAX);
	free(picture);
	picture = fill(many("experts", "layers", PICTURE_LAYERS_MAX + 5), NULL, &r);
	cr_expect_eq(r, 0);
	cr_expect_eq(picture->layer_count, PICTURE_LAYERS_MAX);
	cr_expect(picture->truncated);
	free(picture);
}

Test(top_picture, experts_beyond_the_bound_have_no_map)
{
	char *state = malloc(PICTURE_EXPERTS_MAX + 1), *heat = malloc(PICTURE_EXPERTS_MAX + 1);
	struct picture *picture;
	json_t *sample, *layer;
	int r;

	memset(state, 'r', PICTURE_EXPERTS_MAX);
	memset(heat, '1', PICTURE_EXPERTS_MAX);
	state[PICTURE_EXPERTS_MAX] = heat[PICTURE_EXPERTS_MAX] = '\0';
	sample = top_sample_make(1);
	layer = json_array_get(json_object_get(json_object_get(sample, "experts"), "layers"), 0);
	(void)json_object_set_new(layer, "experts", json_integer(PICTURE_EXPERTS_MAX));
	(void)json_object_set_new(layer, "state", json_string(state));
	(void)json_object_set_new(layer, "heat", json_string(heat));
	picture = fill(sample, NULL, &r);
	cr_expect_eq(r, 0, "%s", message);
	cr_expect_eq(picture->expert_count, PICTURE_EXPERTS_MAX);
	cr_expect(picture->layer[0].has_map && !picture->layer[1].has_map && picture->truncated);
	free(picture);
	free(state);
	free(heat);
}

/* ---- GPUs ---- */

Test(top_picture, vram_is_counted_over_gpus_that_serve_and_a_lost_one_is_named)
{
	int r;
	struct picture *before = fill(top_sample_make_with_gpus(2, 0), NULL, &r);
	struct picture *picture = fill(top_sample_make_with_gpus(4, 1), before, &r);

	cr_assert_eq(r, 0, "%s", message);
	cr_expect(before->vram.is_there && before->vram.is_on);
	cr_expect_eq(before->vram.used_bytes, 1536 * 1024);
	cr_expect_eq(before->vram.experts, 4);
	cr_expect_eq(before->vram.lost_count, 0);
	cr_expect_eq(picture->vram.experts, 3);
	cr_expect_eq(picture->vram.lost_count, 1);
	cr_expect_eq(picture->vram.lost_device, 1);
	cr_expect_str_eq(picture->vram.reason, "a thread hangs");
	cr_expect_float_eq(picture->vram.hit_share, 0.3, 1e-9);
	cr_expect_float_eq(picture->vram.uploads_s, 6, 1e-9);
	cr_expect_lt(before->vram.hit_share, 0, "no sample before");
	cr_expect_eq(picture->layer[0].in_vram, 3);
	cr_expect(picture->in_vram[5] && !picture->in_vram[4]);
	free(before);
	free(picture);
}

Test(top_picture, a_sample_of_before_gpus_is_one_still)
{
	json_t *with_map_only = top_sample_make_with_gpus(1, 0);
	struct picture *picture = picture_of(1, NULL);
	int r;

	cr_expect(!picture->vram.is_there && !picture->has_vram_map);
	free(picture);
	(void)json_object_del(with_map_only, "vram"); /* as cnre-top recorded it before it asked for the rest */
	picture = fill(with_map_only, NULL, &r);
	cr_expect_eq(r, 0, "%s", message);
	cr_expect(!picture->vram.is_there && picture->has_vram_map);
	free(picture);
}

static json_t *with_vram(const char *key, json_t *value)
{
	json_t *sample = top_sample_make_with_gpus(1, 0);

	(void)json_object_set_new(json_object_get(sample, "vram"), key, value);
	return sample;
}

static json_t *with_device(const char *key, json_t *value)
{
	json_t *sample = top_sample_make_with_gpus(1, 0);
	json_t *devices = json_object_get(json_object_get(sample, "vram"), "devices");

	(void)json_object_set_new(json_array_get(devices, 0), key, value);
	return sample;
}

Test(top_picture, hostile_words_on_vram_are_ebadmsg)
{
	json_t *const samples[] = {
		with_layer("vram", json_string("0....")),    /* an expert is missing */
		with_layer("vram", json_string("0......")),  /* one too many */
		with_layer("vram", json_string("0....a")),   /* no device */
		with_layer("vram", json_string("0....\n")),
		with_layer("vram", json_integer(5)),
		with_vram("state", json_integer(1)),
		with_vram("devices", json_object()),
		with_device("state", json_null()),
		with_device("used_bytes", json_integer(-1)),
		with_device("experts", json_string("many")),
	};

	for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
		int r;
		struct picture *picture = fill(samples[i], NULL, &r);

		cr_expect_eq(r, -EBADMSG, "%zu", i);
		free(picture);
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The names that engines sign their histories with: numbers that were seen in files and sources of theirs. */
#include "model/engine_name.h"

#include <criterion/criterion.h>

Test(model_engine_name, families_sign_as_their_engines_do)
{
	cr_assert_str_eq(engine_name_of("glm"), "glm_moe_dsa");
	cr_assert_eq(engine_name_id("glm"), 3815245270u);
	cr_assert_eq(engine_name_id("olmoe"), 3841822045u);
	cr_assert_str_eq(engine_name_of("kimi_k3"), "kimi_k3");
	cr_assert_str_eq(engine_name_of("inkling"), "inkling");
	cr_assert_str_eq(engine_name_of("deepseek_v4"), "deepseek_v4");
	cr_assert_str_eq(engine_name_of("qwen38"), "qwen38");
	cr_assert_str_eq(engine_name_of("glm53"), "glm53");
}

Test(model_engine_name, family_of_a_user_signs_with_its_own_name)
{
	cr_assert_str_eq(engine_name_of("my-model"), "my-model");
	cr_assert_neq(engine_name_id("my-model"), 0);
}

Test(model_engine_name, signature_is_told_by_name_where_it_is_known)
{
	cr_assert_str_eq(engine_name_find(3815245270u), "glm_moe_dsa");
	cr_assert_str_eq(engine_name_find(engine_name_id("inkling")), "inkling");
	cr_assert_null(engine_name_find(1));
}
